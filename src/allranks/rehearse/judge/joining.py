"""Find ranks that train without having joined each other: each of them is rank 0 of a world of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from allranks.findings import Finding, Note
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event

NOT_JOINED = Kind(
    "AR601",
    "missing-distributed-init",
    "error",
    "N programs run beside each other: nothing is averaged, and each of them takes itself for rank 0 and writes all "
    "files.",
    "Join the ranks first: jax.distributed.initialize(), torch.distributed.init_process_group(), or allranks.init().",
)
# The codes of what follows from it: files of all ranks, equal data, gradients that nothing averages, equal noise.
_FOLLOWS = ("AR1", "AR301", "AR308", "AR310", "AR405", "AR5", "AR70", "AR012", "AR209", "AR203")


def explained(case: Case, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings of a run. If its ranks never joined each other, the cause is first, its effects are remarks.

    The ranks never joined if each of them trains in a world of one, and waits for no other. Ranks that also share
    nothing (files, data, a question for their number) may be right: several experiments at once.
    """
    events = _not_joined(case)
    effects = [one for one in findings if one.code.startswith(_FOLLOWS)]
    if not events or not (effects or all(event.data["queried"] for event in events)):
        yield from findings
        return
    first = events[0]
    text = f"{len(events)} ranks run {first.data['what']} and have not joined each other: each is a world of its own"
    notes = [(f"rank {event.rank} is rank 0 of 1 for {first.data['framework']}", event) for event in events[:4]]
    if (cause := finding(NOT_JOINED, text, first, notes)) is None:
        yield from findings
        return
    yield cause
    note = Note(f"It follows from {cause.code} at line {cause.place.line}: the ranks have not joined each other.")
    for one in findings:
        is_effect = one in effects
        yield replace(one, severity="info", advice=NOT_JOINED.advice, notes=(*one.notes, note)) if is_effect else one


def _not_joined(case: Case) -> list[Event]:
    """Return an event for each rank that trains in a world of one, or [] if not all ranks do."""
    by_rank = {rank: events[-1] for rank, events in case.trace.by_rank("single").items() if events}
    if len(by_rank) < case.trace.ranks or case.trace.ranks == 1 or any(case.trace.of("enter")):
        return []
    return [by_rank[rank] for rank in sorted(by_rank)]
