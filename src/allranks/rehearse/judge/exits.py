"""Find what a rank leaves behind at its end: threads and processes that keep the job alive, errors that are hidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from allranks.findings import Finding
from allranks.rehearse.checkpoint_names import has_checkpoint_ending
from allranks.rehearse.judge.base import Case, Kind, finding, who
from allranks.rehearse.judge.decisions import SWALLOWED
from allranks.rehearse.trace import Event

BEHIND = Kind(
    "AR009",
    "left-running-at-exit",
    "error",
    "The rank does not end, or leaves a process behind: the job holds its machines until the time limit.",
    "End and join it before the program ends (an event that it checks, terminate() and wait()), or make it a daemon.",
)


CUT_OFF = Kind(
    "AR015",
    "write-cut-off-at-exit",
    "error",
    "Python ends daemon threads where they are: the file is half written, and the exit code is 0.",
    "Join the thread before the program ends, or write to a temporary name and rename it when it is complete.",
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line that starts what is left at the end, and for each end that hides an error."""
    lines: dict[tuple[object, str, str], list[Event]] = defaultdict(list)
    for event in case.trace.of("behind", "hidden"):
        lines[event.where, event.kind, event.data.get("what", "")].append(event)
    for (_, kind, what), events in lines.items():
        first = events[0]
        if kind == "hidden":
            text = f"os._exit(0) ends {who(events)} while an error is handled: {first.data['error']}"
            one = finding(SWALLOWED, text, first, [(f"rank {e.rank}: {e.data['error']}", e) for e in events[:2]])
        else:
            text = f"the {what} {first.data['name']!r} of {who(events)} still runs when the program ends"
            one = finding(BEHIND, text, first, [(f"rank {e.rank}: {e.data['name']}", e) for e in events[:2]])
        if one:
            yield one
    yield from _cut_off(case)


def _cut_off(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line that starts a daemon thread which has a file open to write at the end."""
    opened: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in case.trace.of("file"):
        if event.data["operation"] in ("create", "write", "exclusive"):  # a log may be open to append
            opened[event.rank, event.thread].append(event)
    reported: set[object] = set()
    for event in case.trace.of("daemon"):
        mine = [one for one in opened[event.rank, event.data["native"]] if one.data["paths"][-1] in event.data["files"]]
        if mine and event.where not in reported:
            reported.add(event.where)
            path = case.name(mine[-1].data["paths"][-1])
            text = f"the daemon thread {event.data['name']!r} of rank {event.rank} still writes {path} at the end"
            kind = CUT_OFF if has_checkpoint_ending(path) else replace(CUT_OFF, severity="warning")
            if one := finding(kind, text, event, [(f"rank {event.rank} has opened it here", mine[-1])]):
                yield one
