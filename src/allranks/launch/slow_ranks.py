"""Find the ranks for which the others wait again and again, from how often each rank waits. This module does no I/O.

The hang watch of a rank looks at its training thread about once a second, and counts how often it finds the thread in a
collective. The rank that the others wait for is seen there less often than they are. No clocks are compared.

One late arrival says nothing: a rank reads its data or writes a checkpoint. So the job is divided into blocks, and a
rank is slow if it waits less than the others in nearly all of many blocks. A block counts if the ranks have waited
several times in it: while they wait for one long step, each look finds the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from allranks.errors import name_ranks
from allranks.launch.events import WaitReport
from allranks.launch.placement import Placement

FEWEST_BLOCKS = 12
# Of a block: waits that any rank has begun.
_FEWEST_WAITS = 5
# By so much of its time a slow rank waits less than the others, in so many of all blocks.
_LESS, _NEARLY_ALL = 0.1, 0.8
_MOST_LINES = 8


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A slow rank: which ``share`` of the time it waits, the ``median`` of the others, the ``seconds`` they lose."""

    rank: int
    share: float
    median: float
    seconds: float


@dataclass(slots=True)
class _Totals:
    """Of one rank over all blocks: the samples, those in a wait, the blocks in which it was late, the seconds lost."""

    samples: int = 0
    waits: int = 0
    late: int = 0
    median: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class SlowRanks:
    """The waits of all ranks of one start of a job."""

    placement: Placement
    _last: dict[int, WaitReport] = field(default_factory=dict)  # since all ranks have reported
    _begin: dict[int, WaitReport] = field(default_factory=dict)  # of the present block
    _totals: dict[int, _Totals] = field(default_factory=dict)
    _blocks: int = 0

    def note(self, report: WaitReport) -> bool:
        """Record what a rank has counted since its start; return whether a block has ended."""
        self._last[report.rank] = report
        if len(self._last) < self.placement.size:
            return False
        last, self._last = self._last, {}
        gains = {rank: _gain(self._begin.get(rank, one), one) for rank, one in last.items()}
        if min(one.samples for one in gains.values()) <= 0:  # the first reports, or a new watch that counts from 0
            self._begin = last
            return False
        if max(one.begun for one in gains.values()) < _FEWEST_WAITS:
            return False
        self._begin = last
        self._end_block(gains)
        return True

    def slow(self) -> tuple[SlowRank, ...]:
        """Return the ranks that are slow, the one that costs most first."""
        if self._blocks < FEWEST_BLOCKS:
            return ()
        found = [
            SlowRank(rank, one.waits / one.samples, one.median / one.samples, one.seconds)
            for rank, one in self._totals.items()
            if one.late >= _NEARLY_ALL * self._blocks
        ]
        return tuple(sorted(found, key=lambda one: -one.seconds))

    def lines(self) -> tuple[str, ...]:
        """Return a line for each slow rank, or host if all of its ranks are slow."""
        slow, lines = {one.rank: one for one in self.slow()}, []
        while slow:
            first = next(iter(slow.values()))
            host = self.placement.host_of(first.rank)
            ranks = [*self.placement.ranks_on(host)]
            is_host = len(self.placement.hosts) > 1 and len(ranks) > 1 and all(rank in slow for rank in ranks)
            group = ranks if is_host else [first.rank]
            lines.append(_describe([slow.pop(rank) for rank in group], self.placement.hosts[host], is_host=is_host))
        hidden = len(lines) - _MOST_LINES
        return (*lines[:_MOST_LINES], *([f"SLOW: and {hidden} more"] if hidden > 0 else []))

    def _end_block(self, gains: Mapping[int, WaitReport]) -> None:
        self._blocks += 1
        shares = {rank: one.waits / one.samples for rank, one in gains.items()}
        ordered = sorted(shares.values())
        for rank, one in gains.items():
            others = _median_of_others(ordered, shares[rank])
            total = self._totals.setdefault(rank, _Totals())
            total.samples += one.samples
            total.waits += one.waits
            total.late += others - shares[rank] >= _LESS
            total.median += others * one.samples
            total.seconds += (others - shares[rank]) * one.samples * one.period


def _gain(before: WaitReport, now: WaitReport) -> WaitReport:
    return WaitReport(
        now.rank, now.samples - before.samples, now.waits - before.waits, now.begun - before.begun, now.period
    )


def _median_of_others(ordered: Sequence[float], one: float) -> float:
    """Return the median of ascending numbers without ``one``, which is one of them."""
    count, left_out = len(ordered) - 1, bisect_left(ordered, one)
    middle = [at + (at >= left_out) for at in ((count - 1) // 2, count // 2)]
    return (ordered[middle[0]] + ordered[middle[1]]) / 2 if count else one


def _describe(group: Sequence[SlowRank], host: str, *, is_host: bool) -> str:
    names = name_ranks(one.rank for one in group)
    who = f"host {host} ({names})" if is_host else f"{names} (host {host})"
    mine, others = (sum(part) / len(group) for part in zip(*((one.share, one.median) for one in group), strict=True))
    seconds = max(one.seconds for one in group)
    return (
        f"SLOW: {who} is late: in collectives it waits {mine:.0%} of the time, the other ranks {others:.0%}; "
        f"they have lost about {seconds:.0f} s"
    )
