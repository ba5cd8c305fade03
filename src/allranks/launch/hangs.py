"""Collect what is known about the hangs of a job, on host 0. This module does no I/O.

Two sources report hangs:

- The hang watches of the ranks. They name the rank for which the others wait. They talk through a store that rank 0 may
  serve, and each runs inside a rank.
- The launchers. Each observes the processes of its own ranks: one that is stopped (SIGSTOP, a debugger) reports nothing
  itself, and if it serves the store, perhaps no other rank can report it.

A stopped rank is made known to the watches of all hosts at once. It is reported here if no watch has reported it
``PATIENCE`` seconds after the limit for a hang.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from allranks.errors import name_ranks
from allranks.failure import Failure
from allranks.launch.events import Action, HangEvent, HangReport, Print, RankResumed, RankSuspended, ShareSuspended
from allranks.launch.placement import Placement
from allranks.program import HUNG

PATIENCE = 5.0
STOPPED = "stopped: its process gets no time (SIGSTOP, a debugger, Ctrl-Z)"
_REMEDY = "  what to do: Continue it (kill -CONT), or end it."


@dataclass(slots=True)
class Hangs:
    """The hangs of one start of a job. ``limit``: seconds after which a hang is reported (0: never).

    Times are on the caller's clock, in seconds. ``suspended`` has since when the process of a rank is stopped.
    """

    placement: Placement
    limit: float = 0.0
    suspended: dict[int, float] = field(default_factory=dict)
    _open: dict[tuple[int, ...], str] = field(default_factory=dict)  # culprits -> the first line, "" if not shown here

    def on(self, event: HangEvent, now: float) -> list[Action]:
        """Record an event; return what to do."""
        if isinstance(event, RankSuspended):
            self.suspended.setdefault(event.rank, now)
            return [self._share()]
        if isinstance(event, RankResumed):
            self.suspended.pop(event.rank, None)
            return [self._share(), *self._end_of_stop(event.rank)]
        if event.is_over:  # of a stopped rank, the launchers see it
            over = [ranks for ranks in self._open if not self.suspended.keys() & set(ranks)]
            return self._end(f"rank {event.rank} makes progress again", over)
        if event.culprits in self._open:
            return []
        self._open[event.culprits] = event.lines[0] if event.lines else ""
        return _print(event.lines)

    @property
    def due(self) -> float:
        """The time at which ``overdue`` has something to report; inf for never."""
        since = [self.suspended[rank] for rank in self._unreported()]
        return min(since) + self.limit + PATIENCE if since and self.limit else math.inf

    def overdue(self, now: float) -> HangReport | None:
        """Return a report of the ranks that have been stopped for too long and that no watch has reported."""
        if now < self.due:
            return None
        ranks = tuple(rank for rank in self._unreported() if now >= self.suspended[rank] + self.limit)
        since = now - min(self.suspended[rank] for rank in ranks)
        return HangReport(ranks[0], ranks, (f"HANG: {self._name(ranks)}, since {since:.0f} s", _REMEDY))

    @property
    def headline(self) -> str:
        """The first line of the last report of a hang that is not over; "" for none."""
        return next((text for text in reversed(self._open.values()) if text), "")

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that cause the hangs that are not over."""
        return tuple(sorted({rank for ranks in self._open for rank in ranks}))

    def failure(self, report: HangReport, when: float) -> Failure:
        """Return the failure that ends the job because of this report; ``when`` is Unix time."""
        return Failure(report.rank, "", report.lines[0], when, exit_code=HUNG)

    def cause(self, seconds: float, now: float, when: float) -> Failure | None:
        """Return the failure of the rank whose process was stopped first, at least ``seconds`` ago; None for none.

        Frameworks give up such a rank some time, and then other ranks fail.
        """
        first = min(((since, rank) for rank, since in self.suspended.items()), default=None)
        if first is None or now < first[0] + seconds:
            return None
        what = f"{STOPPED}, since {now - first[0]:.0f} s"
        return Failure(first[1], "", what, when, exit_code=HUNG)

    def _unreported(self) -> list[int]:
        reported = {rank for ranks in self._open for rank in ranks}
        return sorted(self.suspended.keys() - reported)

    def _end_of_stop(self, rank: int) -> list[Action]:
        over = [ranks for ranks in self._open if rank in ranks and not self.suspended.keys() & set(ranks)]
        return self._end(f"rank {rank} (host {self._host(rank)}) is not stopped any more", over)

    def _end(self, why: str, over: Sequence[tuple[int, ...]]) -> list[Action]:
        shown = [text for ranks in over if (text := self._open.pop(ranks))]
        return _print([f"HANG: the hang is over: {why}"]) if shown else []

    def _share(self) -> ShareSuspended:
        return ShareSuspended(tuple(sorted(self.suspended)))

    def _name(self, ranks: Sequence[int]) -> str:
        if len(ranks) == 1:
            return f"rank {ranks[0]} (host {self._host(ranks[0])}) is {STOPPED}"
        hosts = ", ".join(self.placement.hosts[host] for host in self.placement.by_host(ranks))
        return f"{name_ranks(ranks)} (host{'s' if ', ' in hosts else ''} {hosts}) are {STOPPED.replace('its', 'their')}"

    def _host(self, rank: int) -> str:
        return self.placement.hosts[self.placement.host_of(rank)]


def _print(lines: Sequence[str]) -> list[Action]:
    """Print all lines on host 0, and the first on the others."""
    return [Print(line, elsewhere="" if number else line) for number, line in enumerate(lines)]
