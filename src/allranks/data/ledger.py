"""Count the samples that were taken, as sums: 16 bytes prove that no sample was read twice or is missing.

The id of every sample that a rank takes is mixed to 64 bits, and the mixed ids are added up. Sums of ranks and of steps
can be added, too. The plan's sum over the same rows and steps is equal only if the samples are equal, except for a
collision in 64 bits.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allranks.data.plan import SamplePlan

_MOST_INTERVALS = 1 << 16
_CHUNK = 1 << 18
_KEPT = 1 << 16  # ids of the last batches, for errors: 0.5 MB
_WORD = (1 << 64) - 1


class SampleSum(NamedTuple):
    """A fingerprint of some samples: their number, the sum of their mixed ids modulo 2**64, and the number unusable."""

    samples: int = 0
    mixed: int = 0
    bad: int = 0

    def plus(self, other: SampleSum) -> SampleSum:
        return SampleSum(self.samples + other.samples, (self.mixed + other.mixed) & _WORD, self.bad + other.bad)

    def minus(self, other: SampleSum) -> SampleSum:
        return SampleSum(self.samples - other.samples, (self.mixed - other.mixed) & _WORD, self.bad - other.bad)

    def same_samples(self, other: SampleSum) -> bool:
        """Return whether both sums are of the same samples, usable or not."""
        return self[:2] == other[:2]


def mix_ids(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash every id to 64 bits (splitmix64)."""
    z = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unmix_ids(mixed_ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the ids that belong to these mixed bits; the inverse of ``mix``."""
    z: NDArray[np.uint64]
    z = (mixed_ids ^ (mixed_ids >> np.uint64(31)) ^ (mixed_ids >> np.uint64(62))) * np.uint64(0x319642B2D24D8EC3)
    z = (z ^ (z >> np.uint64(27)) ^ (z >> np.uint64(54))) * np.uint64(0x96DE1B173F119089)
    z = z ^ (z >> np.uint64(30)) ^ (z >> np.uint64(60))
    return z - np.uint64(0x9E3779B97F4A7C15)


def sum_of_ids(ids: NDArray[np.int64], unusable_count: int = 0) -> SampleSum:
    """Return the sum of the samples with these ids; ids below 0 are padding and not counted."""
    taken = ids[ids >= 0]
    return SampleSum(len(taken), int(mix_ids(taken).sum(dtype=np.uint64)), unusable_count)


def sums_of_batches(ids: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return, for each step, the number of ids and the sum of mixed ids.

    ``ids``: (steps, rows), below 0 for padding.
    """
    taken = ids >= 0
    mixed = np.where(taken, mix_ids(ids), np.uint64(0)).sum(axis=1, dtype=np.uint64)
    return taken.sum(axis=1).tolist(), mixed.tolist()


def sum_of_range(begin: int, end: int) -> SampleSum:
    """Return the sum of the samples with the ids from ``begin`` to ``end``."""
    total = SampleSum()
    for at in range(begin, end, _CHUNK):
        total = total.plus(sum_of_ids(np.arange(at, min(at + _CHUNK, end))))
    return total


def planned_id_chunks(
    plan: SamplePlan, rows: Sequence[int], begin: int, end: int, *, interval: int = 1
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the ids of these rows of the global batches ``begin`` to ``end`` in chunks of some MB.

    A chunk is (first step, ids of the shape (steps, rows)). Each chunk begins at a multiple of ``interval``, except
    perhaps the first.
    """
    many = max(_CHUNK // max(len(rows), 1) // interval, 1) * interval
    at = begin
    while at < end:
        stop = min(at - at % interval + many, end)
        yield at, plan.row_ids(rows, at, stop)
        at = stop


def planned_sum(plan: SamplePlan, rows: Sequence[int], begin: int, end: int) -> SampleSum:
    """Return the sum of the planned samples for these rows of the global batches ``begin`` to ``end``."""
    total = SampleSum()
    for _, ids in planned_id_chunks(plan, rows, begin, end):
        total = total.plus(sum_of_ids(ids))
    return total


def dropped_sum(plan: SamplePlan, streams: Sequence[int]) -> SampleSum:
    """Return the sum of the samples of these streams after the last global batch, if the tail is dropped."""
    total, depth = SampleSum(), plan.steps * plan.layout.depth_of_step
    for stream in streams:
        if depth < plan.stream_length(stream):
            total = total.plus(sum_of_ids(plan.stream_ids(stream, depth, plan.stream_length(stream))))
    return total


class Ledger:
    """The samples that one rank took for its ``rows`` in an epoch since step ``begin``, summed by intervals of steps.

    ``seen`` is the sum of the earlier steps over all ranks. A ledger takes at most 1.5 MB, for any length of an epoch.
    """

    def __init__(self, steps: int, rows: Sequence[int], *, begin: int = 0, seen: SampleSum | None = None) -> None:
        self.rows = tuple(rows)
        self.begin = self.end = begin
        self.seen = seen or SampleSum()
        self.total = SampleSum()
        self.interval = max(1, -(-steps // _MOST_INTERVALS))
        size = -(-max(steps, 1) // self.interval)
        self._count, self._mixed = array("q", bytes(8 * size)), array("Q", bytes(8 * size))
        self._kept: deque[tuple[int, NDArray[np.int64]]] = deque(maxlen=max(_KEPT // max(len(self.rows), 1), 1))

    def record_batch(
        self, step: int, count: int, mixed_sum: int, unusable_count: int = 0, ids: NDArray[np.int64] | None = None
    ) -> None:
        """Count one batch of this rank; ``count`` and ``mixed_sum`` are from ``sums_of_batches``.

        ``ids`` must not change later. They are kept for the last batches, so that an error can name more of the
        samples.
        """
        at = step // self.interval
        self._count[at] += count
        self._mixed[at] = (self._mixed[at] + mixed_sum) & _WORD
        samples, before, unusable = self.total
        self.total = SampleSum(samples + count, (before + mixed_sum) & _WORD, unusable + unusable_count)
        self.end = step + 1
        if ids is not None:
            self._kept.append((step, ids))

    def sums_of_steps(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the counts and the mixed sums of all intervals that contain a step from ``begin`` to ``end``."""
        cut = slice(begin // self.interval, -(-end // self.interval))
        return np.array(self._count[cut], np.int64), np.array(self._mixed[cut], np.uint64)

    def ids_of_steps(self, begin: int, end: int) -> NDArray[np.int64] | None:
        """Return the ids that were taken in steps ``begin`` to ``end``; None if not all of them are kept."""
        kept = {step: ids for step, ids in self._kept if begin <= step < end}
        if len(kept) < end - begin:
            return None
        taken = np.concatenate(list(kept.values()))
        return taken[taken >= 0]
