"""Find models that are not what is trained: copies that differ between ranks, parameters that no optimizer changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding, who
from allranks.rehearse.judge.replicas import DIVERGED, NO_GRADIENT, Table, shares_gradients, tables_of
from allranks.rehearse.trace import Event

LEFT_OUT = Kind(
    "AR011",
    "parameter-left-out",
    "warning",
    "These parameters keep their first values, though their gradients are computed and reduced at each step.",
    "Give them to the optimizer, or freeze them (requires_grad_(False)) before the model is wrapped.",
)
_FEWEST = 3


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each model that ranks evaluate with other weights, and for what optimizers leave out."""
    tables = tables_of(case)
    if case.trace.ranks > 1 and shares_gradients(case):
        yield from _evaluated(case)
    yield from _left_out(case, tables)


def _evaluated(case: Case) -> Iterator[Finding]:
    uses: dict[tuple[object, ...], dict[int, Event]] = defaultdict(dict)
    for event in case.trace.of("evaluated"):
        uses[event.where, event.data["module"], event.data["number"], str(event.data["shapes"])][event.rank] = event
    reported: set[object] = set()
    for (where, module, *_), by_rank in uses.items():
        if where in reported or len(by_rank) < case.trace.ranks:
            continue
        events = [by_rank[rank] for rank in sorted(by_rank)]
        names = [n for n in events[0].data["digests"] if len({event.data["digests"].get(n) for event in events}) > 1]
        if names:
            reported.add(where)
            text = (
                f"the ranks evaluate {module} with other weights on each ({len(names)} parameters, {names[0]}), though "
                "the model that they train is equal on all"
            )
            evidence = [(f"rank {e.rank}, step {e.step}: {names[0]} {e.data['digests'][names[0]]}", e) for e in events]
            if one := finding(DIVERGED, text, events[0], evidence[:2]):
                yield one


def _left_out(case: Case, tables: Mapping[int, Sequence[Table]]) -> Iterator[Finding]:
    """Yield a finding for the parameters that have gradients and are in no optimizer.

    If the optimizer has other parameters, which never get a gradient, it was made of another model.
    """
    last: dict[int, Event] = {}
    for event in case.trace.of("untrained"):
        last[event.rank] = event
    if len(last) < case.trace.ranks or not all(event.data["names"] for event in last.values()):
        return
    events = [last[rank] for rank in sorted(last)]
    first = events[0]
    some = f"{first.data['count']} parameters ({first.data['names'][0]}, ...) have gradients and are in no optimizer"
    evidence = [
        (f"rank {event.rank}, step {event.step}: {', '.join(event.data['names'][:4])}", event) for event in events
    ]
    for those in tables.values():
        rows = range(len(those[0].rows[0]))
        idle = [i for i in rows if not any(row[i].gradient for table in those for row in table.rows)]
        if idle and len(those) >= _FEWEST:
            text = f"{some}; {len(idle)} of the optimizer's parameters never have one: it was made of another model"
            if one := finding(NO_GRADIENT, text, those[0].events[0], evidence[:2]):
                yield one
            return
    if one := finding(LEFT_OUT, f"{who(events)}: {some}", first, evidence[:2]):
        yield one
