"""Which events of a run are ordered: happens-before over all ranks (vector clocks). Pure.

An event of one rank happens before one of another where something forces it to. That is a synchronisation that blocks
the host (a barrier, a collective), a lock that passes from one to the other, or a file for which the second has waited.
That it was earlier by the clock orders nothing. Between a rank's own events, their order in its trace counts.
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
    """``before(a, b)``: whether something forces event a to happen before event b."""

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
    """Return the order of a trace's events."""
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
    """Return, by (rank, index) of an event, the events that must be before it: (rank, index) of each."""
    edges: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for earlier, later in (*_synchronisations(rows), *_locks(rows), *_awaited_files(rows)):
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
    """A lock that was taken after another rank had left it: in the order of time, which the lock enforces."""
    by_path: dict[str, list[Event]] = defaultdict(list)
    for row in rows:
        for event in row:
            if event.kind in ("lock", "unlock"):
                by_path[event.data["path"]].append(event)
    for events in by_path.values():
        last: Event | None = None
        for event in sorted(events, key=lambda event: event.time):
            if event.kind == "unlock":
                last = event
            elif last is not None and last.rank != event.rank:
                yield last, event


def _awaited_files(rows: Sequence[Sequence[Event]]) -> Iterator[tuple[Event, Event]]:
    """A rank asks for a file from one line until it is there: the other's creation of it is before that answer."""
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
            elif refused.pop(key, False):
                makers = [one for one in made[path] if one.rank != event.rank and one.time < event.time]
                if makers:
                    yield max(makers, key=lambda one: one.time), event


_MAKES = ("create", "write", "exclusive", "append", "mkdir", "rename", "link")


def _clocks(
    rows: Sequence[Sequence[Event]], edges: dict[tuple[int, int], list[tuple[int, int]]]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[Clock, ...], ...]]:
    """Return, by rank, the indices from which a new clock holds, and these clocks.

    A clock says, for each rank, up to which index its events are before. Ranks are followed in turn, each as far as
    the events that it waits for are known; a cycle cannot be (a trace is of one run), but what is missing may.
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
