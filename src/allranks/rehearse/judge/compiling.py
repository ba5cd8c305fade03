"""Find functions of JAX that some ranks compile again and again, and others do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event, Frame

RECOMPILES = Kind(
    "AR014",
    "recompiles-on-some-ranks",
    "warning",
    "All ranks wait at each step for the one that compiles: minutes for a large model.",
    "Give the function the same shapes and static arguments in each call, on all ranks: pad, or drop the last batch.",
)
# A rank compiles a function so many times more than another one.
_MORE = 3


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each function that all ranks compile, and one of them far more often than another."""
    functions: dict[tuple[Frame | None, str], dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in case.trace.of("compiled"):
        functions[event.where, event.data["name"]][event.rank].append(event)
    for (_, name), by_rank in functions.items():
        if len(by_rank) < case.trace.ranks:
            continue
        most = max(by_rank, key=lambda rank: len(by_rank[rank]))
        fewest = min(len(events) for events in by_rank.values())
        if len(by_rank[most]) >= fewest + _MORE:
            counts = ", ".join(f"rank {rank}: {len(events)}" for rank, events in sorted(by_rank.items()))
            text = f"{name} is compiled more often on rank {most} than on others ({counts} times)"
            notes = [(f"rank {most}, step {event.step}: compiled again", event) for event in by_rank[most][1:3]]
            if one := finding(RECOMPILES, text, by_rank[most][0], notes):
                yield one
