"""Find a value that one rank logs, computed from its own part of the data and never reduced over the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event

NOT_REDUCED = Kind(
    "AR310",
    "metric-not-reduced",
    "warning",
    "The curve shows one rank's part of the data; a decision by it (best, early stop) is one rank's.",
    "Reduce the value over the ranks first (all_reduce of the sum and the count), then log it on rank 0.",
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line that logs a value of one rank's part of the data, which was not reduced."""
    values: dict[tuple[int, float], list[Event]] = {}
    same_line: dict[tuple[object, int], dict[int, float]] = {}
    for event in case.trace.of("value"):
        values.setdefault((event.rank, event.data["value"]), []).append(event)
        same_line.setdefault((event.where, event.data["count"]), {})[event.rank] = event.data["value"]
    reported: set[object] = set()
    for event in case.trace.of("logged"):
        if (event.where, event.data["name"]) in reported:
            continue
        for source in values.get((event.rank, event.data["value"]), ()):
            others = same_line[source.where, source.data["count"]]
            if source.time <= event.time and len(others) == case.trace.ranks > 1 and len(set(others.values())) > 1:
                reported.add((event.where, event.data["name"]))
                shown = ", ".join(f"rank {rank}: {value:.6g}" for rank, value in sorted(others.items()))
                text = f"rank {event.rank} logs {event.data['name']!r} of its own part of the data ({shown})"
                one = finding(NOT_REDUCED, text, event, [("the value is read here, and differs between ranks", source)])
                if one is not None:
                    yield one
                break
