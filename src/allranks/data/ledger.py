"""Which samples were taken, as sums: 16 bytes prove that nothing was read twice or lost.

Of every sample that a rank takes, its id is mixed to 64 bits, and these are added up. Sums of ranks and of steps add
up, too. A plan's own sum over the same rows and steps is equal if, but for a collision in 64 bits, the samples are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allranks.data.plan import Plan

_MOST_INTERVALS = 1 << 16
_CHUNK = 1 << 20


class Sum(NamedTuple):
    """How many samples, the sum of their mixed ids modulo 2**64, and how many of them could not be used."""

    samples: int = 0
    mixed: int = 0
    bad: int = 0

    def plus(self, other: Sum) -> Sum:
        return Sum(self.samples + other.samples, (self.mixed + other.mixed) % (1 << 64), self.bad + other.bad)


def mix(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return 64 well-mixed bits of every id (splitmix64)."""
    z = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def sum_of(ids: NDArray[np.int64], bad: int = 0) -> Sum:
    """Return the sum of samples; ids below 0 are padding."""
    taken = ids[ids >= 0]
    return Sum(len(taken), int(mix(taken).sum(dtype=np.uint64)), bad)


def sums(ids: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return the counts and the mixed sums of several batches: ids are (steps, rows), below 0 for padding."""
    taken = ids >= 0
    mixed = np.where(taken, mix(ids), np.uint64(0)).sum(axis=1, dtype=np.uint64)
    return taken.sum(axis=1).tolist(), mixed.tolist()


def whole(samples: int) -> Sum:
    """Return the sum of all ids of an epoch, 0 ... samples-1."""
    total = Sum()
    for begin in range(0, samples, _CHUNK):
        total = total.plus(sum_of(np.arange(begin, min(begin + _CHUNK, samples))))
    return total


@dataclass(frozen=True, slots=True)
class Gap:
    """Steps ``begin`` to ``end`` of a rank are not as planned.

    ``lost`` are ids that were planned and not taken, ``extra`` the reverse; both empty where nobody knows.
    """

    rank: int
    begin: int
    end: int
    lost: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()


class Ledger:
    """What one rank took in an epoch, from step ``begin`` on, summed by intervals of steps. Takes 1 MB at most."""

    def __init__(self, steps: int, begin: int = 0) -> None:
        self.begin = self.end = begin
        self.interval = max(1, -(-steps // _MOST_INTERVALS))
        size = -(-max(steps, 1) // self.interval)
        self._count = np.zeros(size, np.int64)
        self._mixed = np.zeros(size, np.uint64)
        self.bad = 0

    def take(self, step: int, count: int, mixed: int, bad: int = 0) -> None:
        """Note one batch of this rank, of which ``sums`` has told count and mixed."""
        at = step // self.interval
        self._count[at] += count
        self._mixed[at] += np.uint64(mixed)
        self.bad += bad
        self.end = step + 1

    @property
    def total(self) -> Sum:
        return Sum(int(self._count.sum()), int(self._mixed.sum(dtype=np.uint64)), self.bad)

    def gaps(self, plan: Plan, rows: Sequence[int], rank: int) -> list[Gap]:
        """Return the intervals of steps in which this rank's sums are not those of its rows in the plan."""
        found = []
        for at in range(self.begin // self.interval, -(-self.end // self.interval)):
            begin, end = max(self.begin, at * self.interval), min(self.end, (at + 1) * self.interval)
            planned = sum_of(plan.row_ids(rows, begin, end))
            if planned[:2] != (int(self._count[at]), int(self._mixed[at])):
                found.append(Gap(rank, begin, end))
        return found
