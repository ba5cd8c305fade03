"""Detect ranks that wait for each other at the start or at the end of a job, where their hang watch does not run.

At the start: some wait to join (``jax.distributed.initialize``, ``init_process_group``), and others do not come. At the
end: every main thread has ended, and a process lives on, in an exit handler, a thread that is no daemon, or a
destructor. A rank that waits to join is stranded where another has exited without joining: nobody will ever answer it.
Values in, values out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from allranks.errors import name_ranks
from allranks.failure import Failure
from allranks.launch.events import LocateRanks, RankLeft

# Below the world's own timeout, so that the report is there before a meeting gives up.
DEFAULT_HANG_AFTER = 240.0


@dataclass(frozen=True, slots=True)
class RankLocations:
    """Where ranks are: as text, and as the failure of the rank for which the others wait, if one was found."""

    lines: tuple[str, ...]
    failure: Failure | None = None


# Finds out where ranks are; of those whose processes live, the pids are given, by rank.
RankLocator = Callable[[LocateRanks, Mapping[int, int]], RankLocations]


def patience(hang_after: float | None, env: Mapping[str, str]) -> float:
    """Return after how many seconds a stall is reported: as given, else as the environment of a rank says."""
    try:
        return float(env.get("ALLRANKS_HANG_AFTER", DEFAULT_HANG_AFTER)) if hang_after is None else hang_after
    except ValueError:
        return DEFAULT_HANG_AFTER  # the ranks refuse what it says


@dataclass(slots=True)
class StallDetector:
    """The state of one job of ``size`` ranks; each kind of stall is reported once, after ``limit`` seconds (0: no)."""

    size: int
    limit: float = 0.0
    joining: dict[int, float] = field(default_factory=dict)  # since when a rank waits to join
    joined: set[int] = field(default_factory=set)
    ended: dict[int, float] = field(default_factory=dict)  # since when a rank's main thread has ended
    exited: dict[int, float] = field(default_factory=dict)  # since when a rank's process is gone
    frameworks: dict[int, str] = field(default_factory=dict)  # of ranks that have left; "" for one that met others
    _is_reported: set[str] = field(default_factory=set)

    def join(self, rank: int) -> None:
        """Record that a rank has joined the others."""
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
        """The framework of ranks of which none has joined another; "" where one has, or that is not known."""
        alone = self.size > 1 and len(self.frameworks) == self.size and all(self.frameworks.values())
        return self.frameworks[0] if alone else ""

    @property
    def due(self) -> float | None:
        """When there is something to report, on the caller's clock; None for never."""
        due = min(self._join_due, self._exit_due)
        return due if due < math.inf else None

    def report(self, now: float) -> list[LocateRanks]:
        """Return what is to be reported now."""
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
        """Return when waiting ranks are given up, since another has exited without joining; None for never."""
        absent = [at for rank, at in self.exited.items() if rank not in self.joined]
        if not absent or not self.joining:
            return None
        return max(min(absent), min(self.joining.values())) + patience

    def first_absent(self) -> tuple[int, str]:
        """Return the rank that exited first without joining, and who waits for it, as text."""
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
