"""Find runs of an experiment tracker that several ranks begin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding, who
from allranks.rehearse.trace import Event

RUNS = Kind(
    "AR103",
    "ungated-tracker",
    "error",
    "The dashboard has one run for each rank, each with a part of the values; or one that all ranks overwrite.",
    "Begin the run on rank 0 only, or give all ranks' runs one group.",
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line at which several ranks begin a run."""
    lines: dict[tuple[object, str], list[Event]] = defaultdict(list)
    for event in case.trace.of("tracker"):
        lines[event.where, event.data["tracker"]].append(event)
    for (_, tracker), events in lines.items():
        ranks = {event.rank for event in events}
        if len(ranks) < 2 or all("group" in event.data.get("run", ()) for event in events):
            continue
        text = f"{who(events)} each begin a run of {tracker}"
        one = finding(RUNS, text, events[0], [(f"rank {e.rank} begins a run", e) for e in events[:4]])
        if one is not None:
            yield one
