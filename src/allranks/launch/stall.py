"""Detect ranks that wait for each other at the start or at the end of a job, when their hang watch does not run.

At the start: some ranks wait to join (``jax.distributed.initialize``, ``init_process_group``), and others do not
arrive. At the end: every main thread has ended, and a process lives on, in an exit handler, a non-daemon thread, or a
destructor. A rank that waits to join is stranded if another rank has exited without joining: nobody will ever answer
it. This module does no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from allranks.errors import name_ranks
from allranks.failure import Failure
from allranks.launch.events import LocateRanks, RankLeft

# Below the world's default timeout, so that the report is printed before an exchange times out.
DEFAULT_HANG_AFTER = 240.0


@dataclass(frozen=True, slots=True)
class RankLocations:
    """Where ranks are, as lines of text.

    ``failure`` is the failure of the rank for which the others wait, if one was found.
    """

    lines: tuple[str, ...]
    failure: Failure | None = None


# Finds out where ranks are. The second argument has the pid of each rank whose process lives.
RankLocator = Callable[[LocateRanks, Mapping[int, int]], RankLocations]


def seconds_until_report(hang_after: float | None, env: Mapping[str, str]) -> float:
    """Return after how many seconds a stall is reported: ``hang_after``, or, if it is None, the value in ``env``."""
    try:
        return float(env.get("ALLRANKS_HANG_AFTER", DEFAULT_HANG_AFTER)) if hang_after is None else hang_after
    except ValueError:
        return DEFAULT_HANG_AFTER  # the ranks refuse what it says


@dataclass(slots=True)
class StallDetector:
    """The state of one job of ``size`` ranks.

    Each kind of stall is reported once, after ``limit`` seconds (0: never).
    """

    size: int
    limit: float = 0.0
    joining: dict[int, float] = field(default_factory=dict)  # since when a rank waits to join
    joined: set[int] = field(default_factory=set)
    ended: dict[int, float] = field(default_factory=dict)  # since when a rank's main thread has ended
    exited: dict[int, float] = field(default_factory=dict)  # since when a rank's process has ended
    frameworks: dict[int, str] = field(default_factory=dict)  # of ranks that have left; "" for one that met others
    _is_reported: set[str] = field(default_factory=set)

    def join(self, rank: int) -> None:
        """Record that a rank has joined the other ranks."""
        self.joined.add(rank)
        self.joining.pop(rank, None)

    def exit(self, rank: int, now: float) -> None:
        """Record that a rank's process has ended."""
        self.exited[rank] = now
        self.joining.pop(rank, None)

    def leave(self, event: RankLeft, now: float) -> None:
        """Record that a rank's main thread has ended."""
        self.ended[event.rank] = now
        self.frameworks[event.rank] = event.unjoined

    @property
    def unjoined(self) -> str:
        """The framework of the ranks if no rank has joined another; "" if a rank has, or if that is not known."""
        alone = self.size > 1 and len(self.frameworks) == self.size and all(self.frameworks.values())
        return self.frameworks[0] if alone else ""

    @property
    def due(self) -> float | None:
        """The time, on the caller's clock, at which there is something to report, or None for never."""
        due = min(self._join_due, self._exit_due)
        return due if due < math.inf else None

    def report(self, now: float) -> list[LocateRanks]:
        """Return the stalls that are to be reported at ``now``."""
        found = []
        if now >= self._join_due:
            since = now - min(self.joining.values())
            found.append(LocateRanks("join", since, tuple(sorted(self.joining)), tuple(sorted(self.exited))))
        if now >= self._exit_due:
            since = now - max(self.ended.values())
            found.append(LocateRanks("exit", since, (), tuple(sorted(self.exited))))
        self._is_reported.update(one.reason for one in found)
        return found

    def stranded_at(self, patience: float) -> float | None:
        """Return the time at which to give up on ranks that wait to join, or None for never.

        They are given up if another rank has exited without joining.
        """
        absent = [at for rank, at in self.exited.items() if rank not in self.joined]
        if not absent or not self.joining:
            return None
        return max(min(absent), min(self.joining.values())) + patience

    def first_absent(self) -> tuple[int, str]:
        """Return the rank that exited first without joining, and a text that says which ranks wait for it."""
        rank = min((at, rank) for rank, at in self.exited.items() if rank not in self.joined)[1]
        verb = "waits" if len(self.joining) == 1 else "wait"
        return rank, f"{name_ranks(self.joining)} {verb} for it to join the world"

    @property
    def _join_due(self) -> float:
        absent = self.size - len(self.joining.keys() | self.joined)
        if not self.limit or not self.joining or not absent or "join" in self._is_reported:
            return math.inf
        return min(self.joining.values()) + self.limit

    @property
    def _exit_due(self) -> float:
        done = self.ended.keys() | self.exited.keys()
        if not self.limit or len(done) < self.size or len(self.exited) == self.size or "exit" in self._is_reported:
            return math.inf
        return max(self.ended.values(), default=math.inf) + self.limit
