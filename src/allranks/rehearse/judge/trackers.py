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
    """Yield a finding for each line at which several ranks begin a run, or make event files in one folder."""
    lines: dict[tuple[object, str], list[Event]] = defaultdict(list)
    for event in case.trace.of("tracker"):
        lines[event.where, event.data["tracker"]].append(event)
    for (_, tracker), events in lines.items():
        ranks = {event.rank for event in events}
        if len(ranks) < 2 or all("group" in event.data.get("run", ()) for event in events):
            continue
        text = f"{who(events)} each begin a run of {tracker}"
        if one := finding(RUNS, text, events[0], [(f"rank {e.rank} begins a run", e) for e in events[:4]]):
            yield one
    if not any("tensorboard" in tracker for _, tracker in lines):
        yield from _event_files(case)


def _event_files(case: Case) -> Iterator[Finding]:
    """Yield a finding for each folder in which several ranks make event files of TensorBoard."""
    folders: dict[str, dict[int, Event]] = defaultdict(dict)
    for event in case.trace.of("file"):
        folder, _, name = event.data["paths"][-1].rpartition("/")
        if "tfevents" in name and event.data["operation"] not in ("read", "exists", "remove"):
            folders[folder].setdefault(event.rank, event)
    for folder, by_rank in folders.items():
        if len(by_rank) > 1:
            events = list(by_rank.values())
            text = f"{who(events)} each make an event file of TensorBoard in {case.name(folder)}"
            if one := finding(RUNS, text, events[0], [(f"rank {e.rank} makes its file", e) for e in events[:4]]):
                yield one
