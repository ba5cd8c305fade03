"""Define the trace of a run as values: events, each of one rank at one line.

The order of a rank's events is given by ``position``: how many records of synchronisations the rank had written before.
A barrier, or a collective that blocks the host, has two records: enter and leave. ``time`` is the machine's monotonic
clock, in seconds; it orders the events of one rank between two such records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# What is lost where the kernel does not let the launcher see file calls. The reason follows.
UNWATCHED = "only Python's own file calls are seen, and files are not restored, so one run is made"


class Frame(NamedTuple):
    """A line of the program in the call stack of an event. ``path`` is absolute."""

    path: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Event:
    """One action of a rank. ``place`` has the user's frames, the innermost first; it is empty if they are not known.

    ``kind`` determines the fields of ``data`` (the table is in docs/rehearse.md). ``process`` and ``thread`` are the
    kernel's numbers; a child of the rank has another process.
    """

    rank: int
    kind: str
    position: int
    time: float
    step: int = 0
    place: tuple[Frame, ...] = ()
    process: int = 0
    thread: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> Frame | None:
        """The user's line that caused the event, or None if it is not known."""
        return self.place[0] if self.place else None


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of one run of all ranks, in the order of time."""

    ranks: int
    events: tuple[Event, ...]
    notes: tuple[str, ...] = ()

    def of(self, *kinds: str) -> Iterator[Event]:
        """Yield the events of these kinds, in the order of time."""
        return (event for event in self.events if event.kind in kinds)

    @property
    def has_joined_jax(self) -> bool:
        """Whether the ranks were processes of one job of JAX."""
        return any(event.data["name"] == "jax.distributed.initialize" for event in self.of("enter"))

    @property
    def steps(self) -> int:
        """How many steps the rank that was farthest had made at the end."""
        return max((event.step for event in self.events), default=0)

    def by_rank(self, *kinds: str) -> dict[int, list[Event]]:
        """Return the events of these kinds for each rank; an empty list for a rank that has none."""
        found: dict[int, list[Event]] = {rank: [] for rank in range(self.ranks)}
        for event in self.of(*kinds):
            found[event.rank].append(event)
        return found


def read_lines(lines: Iterable[str], rank: int, places: dict[int, tuple[Frame, ...]]) -> Iterator[Event]:
    """Yield the events in one file of a rank. ``places`` gets the frames of each place, by the place's number.

    If the process was killed, the last line may be incomplete; it is skipped.
    """
    for line in lines:
        if not line.endswith("\n"):
            return
        record = json.loads(line)
        kind = record.pop("kind")
        if kind == "place":
            places[record["number"]] = tuple(Frame(*frame) for frame in record["frames"])
            continue
        yield Event(
            rank,
            kind,
            record.pop("position"),
            record.pop("time"),
            record.pop("step"),
            places.get(record.pop("place"), ()),
            record.pop("process"),
            record.pop("thread"),
            record,
        )


def merged(ranks: int, events: Iterable[Event], notes: Iterable[str] = ()) -> Trace:
    """Return the trace of all ranks, with the events in the order of time."""
    return Trace(ranks, tuple(sorted(events, key=lambda event: (event.time, event.rank))), tuple(notes))
