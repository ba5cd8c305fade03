"""Who would read what: an epoch's plan on a number of ranks, looked at without reading anything.

A rank reads all blocks that its lanes touch, and a block at the border of two lanes is read for each of them. The bytes
of a block are taken to be its share of the rows of its file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.index import Index
from allranks.data.plan import EpochPlan, rows_of_rank

Ints = NDArray[np.int64]
_PIECES = 100  # of the corpus, for the quality of the shuffle
_MOST_LANES, _MOST_IDS = 512, 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """What each rank would do in an epoch, by rank: ``samples`` that it takes, ``padding`` rows without one, ``lanes``
    that it reads, alone or with others, and the ``blocks`` and bytes (``nbytes``) of these.
    """

    plan: EpochPlan
    ranks: int
    samples: Ints
    padding: Ints
    lanes: Ints
    blocks: Ints
    nbytes: Ints

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Of every rank: what it reads, by the N-th part of all bytes."""
        found: NDArray[np.float64] = self.nbytes * self.ranks / max(self.plan.index.nbytes, 1)
        return found

    @property
    def held(self) -> int:
        """How many bytes of blocks, as they are in their files, a rank holds at a time: a window of every lane."""
        index, how = self.plan.index, self.plan.layout
        window = min(how.window, -(-len(index) // how.lanes))
        return int(int(self.lanes.max()) * window * index.nbytes / len(index))


def outlook(plan: EpochPlan, ranks: int) -> Outlook:
    """Return what each of ``ranks`` ranks would do. Raises DataError where they do not divide the batch."""
    batch, many = plan.layout.global_batch, plan.layout.depth_of_step
    rows = len(rows_of_rank(0, ranks, batch))
    begins = np.arange(ranks, dtype=np.int64) * rows
    low, high = begins // many, (begins + rows - 1) // many + 1
    first, last = _blocks_of_lanes(plan)
    in_order = _block_bytes(plan.index)[plan.stream[0]]
    weights = _cumulated(in_order)
    blocks, nbytes = _cumulated(last - first), _cumulated(weights[last] - weights[first])
    taken = _samples_of_rows(plan).reshape(ranks, rows).sum(axis=1)
    return Outlook(
        plan,
        ranks,
        samples=taken,
        padding=rows * plan.steps - taken,
        lanes=high - low,
        blocks=(blocks[high] - blocks[low]).astype(np.int64),
        nbytes=np.rint(nbytes[high] - nbytes[low]).astype(np.int64),
    )


def lanes_of_rank(plan: EpochPlan, rank: int, ranks: int) -> range:
    """Return the lanes that a rank reads, alone or with others."""
    rows, many = rows_of_rank(rank, ranks, plan.layout.global_batch), plan.layout.depth_of_step
    return range(rows.start // many, (rows.stop - 1) // many + 1)


def files_of(plan: EpochPlan, lanes: range) -> int:
    """Return how many files these lanes are read from."""
    first, last = _blocks_of_lanes(plan)
    mine = slice(lanes.start, lanes.stop)
    held = last[mine] > first[mine]  # where samples are fewer than lanes, some lanes have none
    if not held.any():
        return 0
    blocks = plan.stream[0][first[mine][held].min() : last[mine][held].max()]
    return len(np.unique(plan.index.file[blocks]))


def coverage(plan: EpochPlan, lanes: range, cells: int) -> list[float]:
    """Cut the samples, in the order of the files, into cells; return of each the share that these lanes read."""
    begin, end = plan.bounds(lanes.start)[0], plan.bounds(lanes.stop - 1)[1]
    blocks, ends = plan.stream
    touched = slice(int(np.searchsorted(ends, begin, side="right")), int(np.searchsorted(ends, end)) + 1)
    blocks, ends = blocks[touched], ends[touched]
    begins = ends - plan.index.rows[blocks]
    starts, stops = np.maximum(begins, begin), np.minimum(ends, end)
    ids = plan.index.first[blocks] + starts - begins
    by_id = np.argsort(ids)
    ids, counts = ids[by_id], (stops - starts)[by_id]
    before = _cumulated(counts)
    edges = np.linspace(0, plan.samples, cells + 1)
    known = np.stack([ids, ids + counts], 1).reshape(-1), np.stack([before[:-1], before[1:]], 1).reshape(-1)
    found: list[float] = (np.diff(np.interp(edges, *known)) / np.diff(edges)).tolist()
    return found


def first_touch(plan: EpochPlan) -> float:
    """Return of how many of a hundred equal parts of the samples, in the order of the files, the first hundredth of
    the steps takes some; as a share. Of very large plans only a part is looked at: it is that much then, or more.
    """
    lanes = np.unique(np.linspace(0, plan.layout.lanes - 1, _MOST_LANES).astype(int)).tolist()
    depth = -(-plan.steps // _PIECES) * plan.layout.depth_of_step
    depth = min(depth, max(_MOST_IDS // len(lanes), 1))
    ids = np.concatenate([plan.lane_ids(lane, 0, depth) for lane in lanes])
    pieces = min(_PIECES, plan.samples)
    return len(np.unique(ids[ids >= 0] * pieces // plan.samples)) / pieces


def _blocks_of_lanes(plan: EpochPlan) -> tuple[Ints, Ints]:
    """Return the first block of every lane, and the last + 1, as places in the stream's order."""
    edges = np.arange(plan.layout.lanes + 1, dtype=np.int64) * plan.samples // plan.layout.lanes
    _, ends = plan.stream
    first = np.searchsorted(ends, edges[:-1], side="right")
    last = np.searchsorted(ends, edges[1:]) + 1
    return first, np.where(edges[1:] > edges[:-1], last, first)


def _block_bytes(index: Index) -> NDArray[np.float64]:
    files = len(index.files)
    rows = np.bincount(index.file, weights=index.rows, minlength=files)
    nbytes = np.array([file.nbytes for file in index.files], np.float64)
    found: NDArray[np.float64] = index.rows * (nbytes / np.maximum(rows, 1))[index.file]
    return found


def _samples_of_rows(plan: EpochPlan) -> Ints:
    """Return for every row of the batch in how many steps it has a sample."""
    many, lanes = plan.layout.depth_of_step, plan.layout.lanes
    edges = np.arange(lanes + 1, dtype=np.int64) * plan.samples // lanes
    lane, offset = np.divmod(np.arange(plan.layout.global_batch, dtype=np.int64), many)
    found: Ints = np.clip(-(-(np.diff(edges)[lane] - offset) // many), 0, plan.steps)
    return found


def _cumulated(numbers: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros(1, numbers.dtype), np.cumsum(numbers)])
