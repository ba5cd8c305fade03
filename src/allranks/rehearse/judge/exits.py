"""Find what a rank leaves behind at its end: threads and processes that keep the job alive, errors that are hidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from allranks.findings import Finding
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
