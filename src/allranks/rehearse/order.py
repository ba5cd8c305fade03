"""Compute which events of a run are ordered: happens-before over all ranks (vector clocks).

An event of one rank happens before an event of another rank if something forces this order. An earlier time on the
clock orders nothing. The events of one rank have the order of its trace. These things force an order:

- a synchronisation that blocks the host (a barrier, a collective)
- a lock that passes from one rank to the other
- a file for which the second rank has waited
- a step that needs the gradients of all ranks
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from allranks.rehearse.trace import Event, Trace

Clock = tuple[int, ...]
# Whose entering a leave waits for, by the way of a synchronisation.
_WAITS_FOR_ALL, _WAITS_FOR_ROOT = ("all", "to"), "from"


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a trace's events.

    ``before(a, b)`` returns whether something forces event a to happen before event b.
    """

    index: dict[int, int]
    starts: tuple[tuple[int, ...], ...]
    clocks: tuple[tuple[Clock, ...], ...]

    def before(self, a: Event, b: Event) -> bool:
        mine, theirs = self.index[id(a)], self.index[id(b)]
        if a.rank == b.rank:
            return mine < theirs
        at = bisect_right(self.starts[b.rank], theirs) - 1
        return mine <= self.clocks[b.rank][at][a.rank]

    def is_ordered(self, a: Event, b: Event) -> bool:
        return self.before(a, b) or self.before(b, a)


def order_of(trace: Trace) -> Order:
    """Compute which events of a trace are ordered (happens-before)."""
    rows: list[list[Event]] = [[] for _ in range(trace.ranks)]
    for event in trace.events:
        rows[event.rank].append(event)
    for row in rows:
        row.sort(key=lambda event: (event.position, event.time))
    index = {id(event): place for row in rows for place, event in enumerate(row)}
    edges = _edges(rows, index)
    starts, clocks = _clocks(rows, edges)
    return Order(index, starts, clocks)


def _edges(rows: Sequence[Sequence[Event]], index: dict[int, int]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return, for each event, the events that must be before it. Every event is given as (rank, index)."""
    edges: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for earlier, later in (*_synchronisations(rows), *_locks(rows), *_awaited_files(rows), *_steps(rows)):
        edges[later.rank, index[id(later)]].append((earlier.rank, index[id(earlier)]))
    return edges


def _synchronisations(rows: Sequence[Sequence[Event]]) -> Iterator[tuple[Event, Event]]:
    entered: dict[str, list[Event]] = defaultdict(list)
    for row in rows:
        for event in row:
            if event.kind == "enter":
                entered[event.data["key"]].append(event)
    for row in rows:
        for event in row:
            if event.kind != "leave":
                continue
            for other in entered[event.data["key"]]:
                if other.rank != event.rank and _waits(event, other):
                    yield other, event


def _waits(leaving: Event, other: Event) -> bool:
    way, root = leaving.data["way"], leaving.data.get("root")
    if way == "from":
        return other.rank == root
    if way == "to":
        return leaving.rank == root
    return True


def _locks(rows: Sequence[Sequence[Event]]) -> Iterator[tuple[Event, Event]]:
    """Yield pairs (last event with the lock, lock): a rank took a lock that another rank had before.

    A file that is closed gives its lock back without an event. Then all that the other rank did before this rank has
    the lock counts as done with the lock.
    """
    by_path: dict[str, list[Event]] = defaultdict(list)
    for row in rows:
        for event in row:
            if event.kind in ("lock", "unlock"):
                by_path[event.data["path"]].append(event)
    for events in by_path.values():
        last: dict[int, Event] = {}
        for event in sorted(events, key=lambda event: event.time):
            if event.kind == "lock":
                for rank, other in last.items():
                    if rank != event.rank and not (event.data.get("shared") and other.data.get("shared")):
                        yield other if other.kind == "unlock" else _last_before(rows[rank], event.time), event
            last[event.rank] = event


def _last_before(row: Sequence[Event], time: float) -> Event:
    """Return the last event of a rank before a time. There must be one."""
    return max((event for event in row if event.time < time), key=lambda event: event.time)


def _awaited_files(rows: Sequence[Sequence[Event]]) -> Iterator[tuple[Event, Event]]:
    """Yield pairs (creation, check): a rank checked for a file at one line until another rank had created it.

    A check in the head of a ``while`` loop waits, even if the file was there at the first check.
    """
    made: dict[str, list[Event]] = defaultdict(list)
    for row in rows:
        for event in row:
            if event.kind == "file" and event.data["operation"] in _MAKES:
                made[event.data["paths"][-1]].append(event)
    for row in rows:
        refused: dict[tuple[str, object], bool] = {}
        for event in row:
            if event.kind != "file" or event.data["operation"] not in ("exists", "read"):
                continue
            path = event.data["paths"][0]
            key = (path, event.where)
            if not event.data["existed"]:
                refused[key] = True
            elif refused.pop(key, False) or event.data.get("waits"):
                makers = [one for one in made[path] if one.rank != event.rank and one.time < event.time]
                if makers:
                    yield max(makers, key=lambda one: one.time), event


_MAKES = ("create", "write", "exclusive", "append", "mkdir", "rename", "link")


def _steps(rows: Sequence[Sequence[Event]]) -> Iterator[tuple[Event, Event]]:
    """Yield pairs (forward pass, step): a step that shares gradients needs the forward passes of all ranks.

    A step of JAX is recorded before its program runs, so it is the next but one that needs the program of all ranks.
    """
    forwards: dict[tuple[int, int], Event] = {}
    steps: dict[tuple[int, int], Event] = {}
    for row in rows:
        for event in row:
            if event.kind == "input":
                forwards.setdefault((event.rank, event.step + 1), event)
            elif event.kind == "step" and event.data.get("optimizer", 0) == 0 and "number" in event.data:
                steps[event.rank, event.data["number"]] = event
    shares = _shares_gradients(rows)
    for (rank, number), step in steps.items():
        for other in range(len(rows)):
            needed = steps.get((other, number - 2)) if "program" in step.data else forwards.get((other, number))
            if other != rank and needed is not None and ("program" in step.data or shares):
                yield needed, step


_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel")


def _shares_gradients(rows: Sequence[Sequence[Event]]) -> bool:
    """Return whether optimizers of torch got equal gradients on all ranks, or hold parts of one model.

    Gradients of zero say nothing; then the wrapper of the model counts.
    """
    digests: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for row in rows:
        for event in row:
            if event.kind == "input" and event.data.get("module") in _WRAPPERS:
                return True
            if event.kind != "weights":
                continue
            for place, (_, _, _, layout, _, gradient, _) in enumerate(event.data["rows"]):
                if layout:
                    return True
                if gradient:
                    digests[event.data["optimizer"], event.data["number"], place, gradient].add(event.rank)
    return any(len(ranks) == len(rows) > 1 for ranks in digests.values())


def _clocks(
    rows: Sequence[Sequence[Event]], edges: dict[tuple[int, int], list[tuple[int, int]]]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[Clock, ...], ...]]:
    """Return, for each rank, the indices from which a new vector clock is valid, and these clocks.

    A clock has, for each rank, the index up to which that rank's events are before. Ranks are processed in turn, each
    as far as the events that it waits for are known. A cycle is impossible (a trace is of one run), but events may be
    missing.
    """
    size = len(rows)
    starts: list[list[int]] = [[0] for _ in rows]
    clocks: list[list[Clock]] = [[(-1,) * size] for _ in rows]
    points = [sorted(place for rank, place in edges if rank == number) for number in range(size)]
    at = [0] * size
    moved = True
    while moved or any(at[rank] < len(points[rank]) for rank in range(size)):
        moved = False
        for rank in range(size):
            while at[rank] < len(points[rank]):
                place = points[rank][at[rank]]
                sources = edges[rank, place]
                if not all(_is_known(at, points, source) for source in sources):
                    break
                _join(rank, place, sources, starts, clocks)
                at[rank] += 1
                moved = True
        if not moved:
            stuck = [rank for rank in range(size) if at[rank] < len(points[rank])]
            if not stuck:
                break
            rank = min(stuck, key=lambda one: rows[one][points[one][at[one]]].time)
            place = points[rank][at[rank]]
            _join(rank, place, edges[rank, place], starts, clocks)
            at[rank] += 1
    return tuple(map(tuple, starts)), tuple(map(tuple, clocks))


def _is_known(at: list[int], points: list[list[int]], source: tuple[int, int]) -> bool:
    rank, place = source
    return at[rank] >= len(points[rank]) or points[rank][at[rank]] > place


def _join(
    rank: int,
    place: int,
    sources: Iterable[tuple[int, int]],
    starts: list[list[int]],
    clocks: list[list[Clock]],
) -> None:
    clock = list(clocks[rank][-1])
    for other, index in sources:
        known = clocks[other][bisect_right(starts[other], index) - 1]
        clock = [max(a, b) for a, b in zip(clock, known, strict=True)]
        clock[other] = max(clock[other], index)
    starts[rank].append(place)
    clocks[rank].append(tuple(clock))
