"""Find the call of a collective, or of a program of several processes, that only some of its ranks make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from allranks.errors import name_ranks
from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding, who
from allranks.rehearse.trace import Event, Frame, Trace

ONE_RANK = Kind(
    "AR201",
    "collective-under-rank-guard",
    "error",
    "The ranks that call wait for those that do not: the job hangs.",
    "Let all ranks call it, or none.",
)
THREADS = Kind(
    "AR211",
    "collective-order-differs",
    "error",
    "On a rank where the other thread is first, calls are matched with the wrong ones: a hang, or wrong values.",
    "Give the thread a group of its own (dist.new_group()), or let the main thread make all calls.",
)
# How the key of a call begins that two ranks make: one sends, the other receives.
_PAIR = "pair "


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for the first call that some ranks have not made when they ended, and for calls in threads."""
    ended = {event.rank for event in case.trace.of("left")}
    for events in sorted(_unmatched(case.trace), key=lambda events: events[0].time):
        if _missing(case.trace, events) <= ended and (one := partial_call(case.trace, events)):
            yield one
            break
    if one := _in_threads(case.trace):
        yield one


def _in_threads(trace: Trace) -> Finding | None:
    """Return a finding if two threads of a rank call collectives of one group by turns, or None.

    Nothing orders their calls: on another rank the other thread may come first.
    """
    for rank, events in trace.by_rank("enter").items():
        by_group: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            if not _is_pair(event):
                by_group[str(event.data["key"]).rpartition("/")[0]].append(event)
        for calls in by_group.values():
            others = [event for event in calls if event.thread != event.process]
            mains = [event for event in calls if event.thread == event.process]
            between = [event for event in mains if others and others[0].time < event.time < others[-1].time]
            if between and others[0].where:
                text = (
                    f"rank {rank} calls {others[0].data['name']} in a thread, and {between[0].data['name']} of the "
                    "same group in its main thread: nothing orders the two"
                )
                notes = [("the thread calls here", others[0]), ("the main thread calls here", between[0])]
                return finding(THREADS, text, others[0], notes)
    return None


def partial_call(trace: Trace, events: Sequence[Event], why: str = "") -> Finding | None:
    """Return the finding for a call that only the ranks of ``events`` make. ``why`` is how the run ended."""
    missing = sorted(_missing(trace, events))
    name = events[0].data.get("name", "a collective")
    does = "does" if len(missing) == 1 else "do"
    text = f"only {who(events)} call{'s' * (len(events) == 1)} {name} here; {name_ranks(missing)} {does} not"
    notes: list[tuple[str, Event | None]] = [(f"rank {event.rank} calls {name}", event) for event in events[:2]]
    for rank in missing:
        own = [event for event in trace.of("enter", "program", "step") if event.rank == rank]
        at = next((event for event in own if event.time > events[0].time), own[-1] if own else None)
        if at is not None:
            notes.append((f"rank {rank} is here instead: {at.data.get('name', 'a step')}", at))
    return finding(ONE_RANK, text, events[0], [*notes, *([(why, None)] if why else [])])


def partial_calls(trace: Trace) -> list[Event]:
    """Return, for each rank that makes it, the first call that other ranks of its group never make; [] for none.

    Ranks may make one collective at different lines. It is a partial call if the others never make it at the line of
    some ranks, and are in another collective instead, which all ranks make.
    """
    found = [*_unmatched(trace), *_programs(trace)]
    return min(found, key=lambda events: (not _is_pair(events[0]), events[0].time), default=[])


def _unmatched(trace: Trace) -> Iterator[list[Event]]:
    entered: dict[str, dict[int, Event]] = defaultdict(dict)
    lines: dict[tuple[Frame | None, str], set[int]] = defaultdict(set)
    for event in trace.of("enter"):
        entered[event.data["key"]][event.rank] = event
        lines[event.where, event.data.get("name", "")].add(event.rank)
    for by_rank in entered.values():
        events = [by_rank[rank] for rank in sorted(by_rank)]
        members = _members(trace, events[0])
        if len(by_rank) == len(members) and _is_pair(events[0]):
            continue
        partial = [e for e in events if e.where and lines[e.where, e.data.get("name", "")] < members]
        if len({event.where for event in partial}) == 1 and len(partial) < len(members):
            yield partial


def _members(trace: Trace, event: Event) -> set[int]:
    return set(event.data.get("members") or event.data.get("processes") or range(trace.ranks))


def _missing(trace: Trace, events: Sequence[Event]) -> set[int]:
    return _members(trace, events[0]) - {event.rank for event in events}


def _is_pair(event: Event) -> bool:
    return str(event.data.get("key", "")).startswith(_PAIR)


def _programs(trace: Trace) -> Iterator[list[Event]]:
    """Yield the first runs of each program of JAX that some of its processes never run."""
    programs: dict[str, dict[int, Event]] = defaultdict(dict)
    for event in trace.of("program"):
        programs[event.data["name"]].setdefault(event.rank, event)
    for by_rank in programs.values():
        events = [by_rank[rank] for rank in sorted(by_rank)]
        if set(by_rank) < set(events[0].data["processes"]):
            yield events
