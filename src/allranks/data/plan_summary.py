"""Compute from the plan how many samples and bytes each rank would read in an epoch.

A rank reads all blocks that contain samples of its streams. A block at the border of two streams is read for each of
them. The bytes of a block are estimated from its share of the rows of its file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.arguments import check_number
from allranks.data.index import DatasetIndex
from allranks.data.plan import EpochPlan, rows_of_rank

Ints = NDArray[np.int64]
_PIECES = 100  # of the corpus, for the quality of the shuffle
_MOST_STREAMS, _MOST_IDS, _MOST_RANKS = 512, 1 << 20, 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class PlanSummary:
    """What each rank would read in an epoch. All arrays have one entry a rank.

    - ``samples``: the samples that the rank takes.
    - ``padding``: its rows without a sample.
    - ``streams``: how many streams it reads, including those that other ranks read, too.
    - ``blocks`` and ``nbytes``: the blocks and bytes of these streams.
    """

    plan: EpochPlan
    ranks: int
    samples: Ints
    padding: Ints
    streams: Ints
    blocks: Ints
    nbytes: Ints

    @property
    def read_ratio(self) -> NDArray[np.float64]:
        """For each rank, the bytes that it reads, divided by 1/N of all bytes (N ranks)."""
        found: NDArray[np.float64] = self.nbytes * self.ranks / max(self.plan.index.nbytes, 1)
        return found

    @property
    def bytes_held(self) -> int:
        """For each rank, the bytes of the blocks that it holds in memory at a time: one window of every stream."""
        index, how = self.plan.index, self.plan.layout
        window = min(how.window, -(-len(index) // how.streams))
        return int(int(self.streams.max()) * window * index.nbytes / len(index))


def summarize_plan(plan: EpochPlan, ranks: int) -> PlanSummary:
    """Return the summary of a plan for ``ranks`` ranks. Raises DataError if ``ranks`` does not divide the batch."""
    check_number("ranks", ranks, "a number of ranks", least=1, most=_MOST_RANKS)
    batch, many = plan.layout.global_batch, plan.layout.depth_of_step
    rows = len(rows_of_rank(0, ranks, batch))
    begins = np.arange(ranks, dtype=np.int64) * rows
    low, high = begins // many, (begins + rows - 1) // many + 1
    first, last = _blocks_of_streams(plan)
    in_order = _block_bytes(plan.index)[plan.block_order[0]]
    weights = _cumulative_sums(in_order)
    blocks, nbytes = _cumulative_sums(last - first), _cumulative_sums(weights[last] - weights[first])
    taken = _samples_of_rows(plan).reshape(ranks, rows).sum(axis=1)
    return PlanSummary(
        plan,
        ranks,
        samples=taken,
        padding=rows * plan.steps - taken,
        streams=high - low,
        blocks=(blocks[high] - blocks[low]).astype(np.int64),
        nbytes=np.rint(nbytes[high] - nbytes[low]).astype(np.int64),
    )


def streams_of_rank(plan: EpochPlan, rank: int, ranks: int) -> range:
    """Return the streams that a rank reads, including those that it shares with other ranks."""
    rows, many = rows_of_rank(rank, ranks, plan.layout.global_batch), plan.layout.depth_of_step
    return range(rows.start // many, (rows.stop - 1) // many + 1)


def count_files(plan: EpochPlan, streams: range) -> int:
    """Return the number of files from which these streams are read."""
    first, last = _blocks_of_streams(plan)
    mine = slice(streams.start, streams.stop)
    held = last[mine] > first[mine]  # where samples are fewer than streams, some streams have none
    if not held.any():
        return 0
    blocks = plan.block_order[0][first[mine][held].min() : last[mine][held].max()]
    return len(np.unique(plan.index.file[blocks]))


def stream_coverage(plan: EpochPlan, streams: range, cell_count: int) -> list[float]:
    """Divide the samples in file order into equal cells. Return the fraction of each cell that these streams read."""
    begin, end = plan.stream_bounds(streams.start)[0], plan.stream_bounds(streams.stop - 1)[1]
    blocks, ends = plan.block_order
    touched = slice(int(np.searchsorted(ends, begin, side="right")), int(np.searchsorted(ends, end)) + 1)
    blocks, ends = blocks[touched], ends[touched]
    begins = ends - plan.index.rows[blocks]
    starts, stops = np.maximum(begins, begin), np.minimum(ends, end)
    ids = plan.index.first_ids[blocks] + starts - begins
    by_id = np.argsort(ids)
    ids, counts = ids[by_id], (stops - starts)[by_id]
    before = _cumulative_sums(counts)
    edges = np.linspace(0, plan.samples, cell_count + 1)
    known = np.stack([ids, ids + counts], 1).reshape(-1), np.stack([before[:-1], before[1:]], 1).reshape(-1)
    found: list[float] = (np.diff(np.interp(edges, *known)) / np.diff(edges)).tolist()
    return found


def mixing_ratio(plan: EpochPlan) -> float:
    """Measure how well an epoch is shuffled: the fraction of the data from which the first hundredth of the steps
    samples.

    The samples, in the order of the files, are divided into a hundred equal parts. The result is the share of these
    parts from which a sample is taken. For a very large plan only a part of it is computed, so the result is a minimum.
    """
    streams = np.unique(np.linspace(0, plan.layout.streams - 1, _MOST_STREAMS).astype(int)).tolist()
    depth = -(-plan.steps // _PIECES) * plan.layout.depth_of_step
    depth = min(depth, max(_MOST_IDS // len(streams), 1))
    ids = np.concatenate([plan.stream_ids(stream, 0, depth) for stream in streams])
    pieces = min(_PIECES, plan.samples)
    return len(np.unique(ids[ids >= 0] * pieces // plan.samples)) / pieces


def _blocks_of_streams(plan: EpochPlan) -> tuple[Ints, Ints]:
    """Return the first block, and the last block + 1, of every stream, as positions in the permuted order."""
    edges = np.arange(plan.layout.streams + 1, dtype=np.int64) * plan.samples // plan.layout.streams
    _, ends = plan.block_order
    first = np.searchsorted(ends, edges[:-1], side="right")
    last = np.searchsorted(ends, edges[1:]) + 1
    return first, np.where(edges[1:] > edges[:-1], last, first)


def _block_bytes(index: DatasetIndex) -> NDArray[np.float64]:
    files = len(index.files)
    rows = np.bincount(index.file, weights=index.rows, minlength=files)
    nbytes = np.array([file.nbytes for file in index.files], np.float64)
    found: NDArray[np.float64] = index.rows * (nbytes / np.maximum(rows, 1))[index.file]
    return found


def _samples_of_rows(plan: EpochPlan) -> Ints:
    """Return, for every row of the batch, the number of steps in which it has a sample."""
    many, streams = plan.layout.depth_of_step, plan.layout.streams
    edges = np.arange(streams + 1, dtype=np.int64) * plan.samples // streams
    stream, offset = np.divmod(np.arange(plan.layout.global_batch, dtype=np.int64), many)
    found: Ints = np.clip(-(-(np.diff(edges)[stream] - offset) // many), 0, plan.steps)
    return found


def _cumulative_sums(numbers: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros(1, numbers.dtype), np.cumsum(numbers)])
