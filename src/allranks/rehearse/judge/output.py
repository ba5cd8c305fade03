"""Find lines that all ranks print alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from allranks.errors import name_ranks
from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event

REPEATED = Kind(
    "AR012",
    "printed-by-all-ranks",
    "info",
    "The log has each line once for each rank; what one rank alone has to say is lost among them.",
    "Print on rank 0 (if rank == 0), and let each rank print only what differs, with its number.",
)
_FEWEST = 2


def judge(case: Case) -> Iterator[Finding]:
    """Yield one finding for all lines of the program that each rank prints with the same text."""
    if case.trace.ranks == 1:
        return
    lines: dict[object, dict[int, dict[int, Event]]] = defaultdict(lambda: defaultdict(dict))
    for event in case.trace.of("printed"):
        lines[event.where][event.data["count"]][event.rank] = event
    repeated: list[tuple[int, Event]] = []
    for by_count in lines.values():
        same = [
            by_rank[0]
            for by_rank in by_count.values()
            if len(by_rank) == case.trace.ranks and len({event.data["text"] for event in by_rank.values()}) == 1
        ]
        if same:
            repeated.append((len(same), same[0]))
    total = sum(number for number, _ in repeated)
    if total < _FEWEST:
        return
    repeated.sort(key=lambda one: -one[0])
    _, first = repeated[0]
    text = f"{name_ranks(range(case.trace.ranks))} print the same {total} lines, as {first.data['text'][:60]!r}"
    evidence = [(f"{number} times: {event.data['text'][:60]!r}", event) for number, event in repeated[:4]]
    if one := finding(REPEATED, text, first, evidence):
        yield one
