"""Plan which rank writes which bytes of a state. Every rank computes the same plan, also for 10,000 ranks.

A *cell* is a part of a leaf that its sharding makes. A cell that one rank holds is written by that rank. Cells that
several ranks hold (replicas) are written once, divided among their holders by bytes. For that, the cells of equally
split leaves are laid end to end in a line. Of R holders, the j-th writes the j-th of R equal parts of that line. A
large cell on a border is cut there, between rows. No byte is sent between ranks.

A rank's file begins with the leaves with the largest elements, so that every part is aligned to its elements without
gaps. Among them, leaves with fewer dimensions come first, and equally split leaves are adjacent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import DeclaredArray, RankSplit
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Shard, ShardRun, ShardTable, StoredLeaf, compress_shards
from allranks.extent import Extent
from allranks.storage.base import PAGE

Ints = NDArray[np.int64]

# Replicas below this many bytes are not cut.
_SMALLEST_CUT = 1 << 20
# How many parts are processed together.
_BATCH = 1 << 18
# The bytes of a header beside the tensors, and of one tensor's entry beside its name and numbers, at most.
_HEADER_BASE, _ENTRY_BASE = 256, 80


class WrittenPart(NamedTuple):
    """A part of a leaf that a rank writes: ``extent`` of leaf number ``leaf``.

    It is at byte ``begin`` of the rank's file.

    The part is the ``nbytes`` bytes from byte ``start`` on of the leaf's cell number ``cell``.
    """

    leaf: int
    cell: int
    start: int
    nbytes: int
    extent: Extent
    begin: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What one rank writes, in file order.

    ``bytes``: the size of the file; 0: no file. ``data_begin``: the byte at which the data begins, after the header.
    """

    parts: tuple[WrittenPart, ...]
    data_begin: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointLayout:
    """The layout of all files.

    ``writers``: the ranks that write a file. ``bytes``: the sizes of their files. ``leaves``: where each leaf is.
    """

    writers: tuple[int, ...]
    bytes: tuple[int, ...]
    leaves: dict[str, StoredLeaf]


class _PartBatch(NamedTuple):
    """K parts of leaves that all have D dimensions, as arrays of shape [K] or [K, D].

    They are ordered by leaf and cell.
    """

    leaf: Ints  # [K], as are cell, rank, start and nbytes
    cell: Ints
    rank: Ints
    start: Ints
    nbytes: Ints
    offset: Ints  # [K, D]
    shape: Ints


def plan_file(declared_arrays: Sequence[DeclaredArray], *, rank: int, size: int) -> FilePlan:
    """Return the plan of the file that ``rank`` of ``size`` ranks writes."""
    files = _RankFiles(declared_arrays, size)
    parts: list[WrittenPart] = []
    for batch, begin in files.batches():
        mine = np.flatnonzero(batch.rank == rank)
        columns = (batch.leaf, batch.cell, batch.start, batch.nbytes, batch.offset, batch.shape, begin)
        for leaf, cell, start, nbytes, offset, shape, at in zip(*(c[mine].tolist() for c in columns), strict=True):
            parts.append(WrittenPart(leaf, cell, start, nbytes, Extent(tuple(offset), tuple(shape)), at))
    return FilePlan(tuple(parts), int(files.data_begin[rank]), int(files.end[rank]))


def plan_checkpoint_layout(declared_arrays: Sequence[DeclaredArray], *, size: int) -> CheckpointLayout:
    """Return which bytes of which files hold each leaf."""
    files = _RankFiles(declared_arrays, size)
    runs: dict[int, tuple[ShardRun, ...]] = {}
    for batch, begin in files.batches():
        file = files.number[batch.rank]
        starts = np.flatnonzero(np.diff(batch.leaf, prepend=-1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(batch.leaf)], strict=True):
            some = slice(start, stop)
            runs[int(batch.leaf[start])] = _runs_of_shards(
                file[some], begin[some], batch.offset[some], batch.shape[some]
            )
    leaves = {
        one.path: StoredLeaf(one.shape, one.dtype, one.kind, runs.get(number, ()), one.per_rank)
        for number, one in enumerate(declared_arrays)
    }
    writers = tuple(np.flatnonzero(files.end).tolist())
    return CheckpointLayout(writers, tuple(files.end[list(writers)].tolist()), leaves)


def join_layouts(layouts: Sequence[CheckpointLayout], leaf_order: Iterable[str]) -> CheckpointLayout:
    """Join several layouts into one. Files are numbered on from layout to layout; leaves are in ``leaf_order``."""
    leaves: dict[str, StoredLeaf] = {}
    before = 0
    for one in layouts:
        leaves.update((path, _shift_files(leaf, before)) for path, leaf in one.leaves.items())
        before += len(one.writers)
    writers = tuple(chain.from_iterable(one.writers for one in layouts))
    return CheckpointLayout(
        writers, tuple(chain.from_iterable(one.bytes for one in layouts)), {path: leaves[path] for path in leaf_order}
    )


def _shift_files(leaf: StoredLeaf, files: int) -> StoredLeaf:
    runs = tuple(replace(run, first=replace(run.first, file=run.first.file + files)) for run in leaf.runs)
    return replace(leaf, runs=runs)


def _runs_of_shards(file: Ints, begin: Ints, offset: Ints, shape: Ints) -> tuple[ShardRun, ...]:
    if len(file) == 1:
        return (
            ShardRun(Shard(int(file[0]), int(begin[0]), Extent(tuple(offset[0].tolist()), tuple(shape[0].tolist())))),
        )
    return compress_shards(ShardTable(file, begin, offset, shape))


class _RankFiles:
    """For each rank, the bytes at which data begins and ends in its file. ``number``: the number of the rank's file."""

    def __init__(self, declared: Sequence[DeclaredArray], size: int) -> None:
        self._declared = declared
        self._size = size
        entry = np.array([_entry_bound(one) for one in declared], np.int64)
        headers = np.zeros(size, np.int64)
        data = np.zeros(size, np.int64)
        for batch in _part_batches(declared):
            headers += _sums_by_rank(batch.rank, entry[batch.leaf], size)
            data += _sums_by_rank(batch.rank, batch.nbytes, size)
        self.data_begin = np.where(data > 0, -(-(headers + _HEADER_BASE) // PAGE) * PAGE, 0)
        self.end = self.data_begin + data
        self.number = np.cumsum(data > 0) - 1

    def batches(self) -> Iterator[tuple[_PartBatch, Ints]]:
        """Yield all parts in batches, with the position in its rank's file at which each part begins."""
        cursor = self.data_begin.copy()
        for batch in _part_batches(self._declared):
            order = np.argsort(batch.rank, kind="stable")
            rank, nbytes = batch.rank[order], batch.nbytes[order]
            before = np.cumsum(nbytes) - nbytes
            starts = np.flatnonzero(np.diff(rank, prepend=-1))
            before -= np.repeat(before[starts], np.diff(np.append(starts, len(rank))))
            begin = np.empty_like(nbytes)
            begin[order] = before + cursor[rank]
            cursor += _sums_by_rank(batch.rank, batch.nbytes, self._size)
            yield batch, begin


def _sums_by_rank(rank: Ints, numbers: Ints, size: int) -> Ints:
    return np.bincount(rank, weights=numbers, minlength=size).astype(np.int64)


def _part_batches(declared: Sequence[DeclaredArray]) -> Iterator[_PartBatch]:
    """Yield all parts with at least one byte in batches, in the order of the files."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    splits = _split_numbers(declared)
    for number, one in enumerate(declared):
        groups.setdefault((-DTYPES[one.dtype].size, len(one.shape), splits[id(one.split)]), []).append(number)
    for key in sorted(groups):
        item, split = -key[0], declared[groups[key][0]].split
        numbers = np.array(groups[key], np.int64)
        shapes = np.array([declared[number].shape for number in groups[key]], np.int64).reshape(
            len(numbers), -1 if declared[groups[key][0]].shape else 0
        )
        replicas = _writers_of_cells(split)
        at_once = max(1, _BATCH // len(split.holders)) if replicas.shape[1] == 1 else len(numbers)
        for start in range(0, len(numbers), at_once):
            some = slice(start, start + at_once)
            cells = _cells_of_leaves(numbers[some], shapes[some], split, item)
            if replicas.shape[1] == 1:
                kept = _without_empty_parts(cells._replace(rank=replicas[cells.cell, 0]))
            else:
                kept = _without_empty_parts(_divide_among_holders(cells, replicas))
            if len(kept.leaf):
                yield kept


def _writers_of_cells(split: RankSplit) -> Ints:
    """Return the ranks that write each cell, of shape [cells, replicas].

    ``replicas`` is the smallest number of holders of a cell; of a cell with more holders, the first ones write.
    """
    fewest = min(map(len, split.holders))
    return np.array([holders[:fewest] for holders in split.holders], np.int64)


def _split_numbers(declared: Sequence[DeclaredArray]) -> dict[int, int]:
    """Number the distinct splits of these leaves.

    Return the number by ``id(split)``; equal splits have the same number.

    A split may name 10,000 ranks, so it is hashed only once.
    """
    objects = {id(one.split): one.split for one in declared}
    numbers: dict[RankSplit, int] = {}
    return {key: numbers.setdefault(split, len(numbers)) for key, split in objects.items()}


def _without_empty_parts(batch: _PartBatch) -> _PartBatch:
    """Return a batch without parts that have no bytes."""
    return _PartBatch(*(column[batch.nbytes > 0] for column in batch))


def _cells_of_leaves(numbers: Ints, shapes: Ints, split: RankSplit, item: int) -> _PartBatch:
    """Return all cells of leaves that have the same split as one batch. Its field ``rank`` is not set yet."""
    many, dims = shapes.shape
    cuts = np.array(split.cuts, np.int64)
    index = np.indices(split.cuts).reshape(dims, -1).T if dims else np.zeros((1, 0), np.int64)
    chunk = -(-shapes // cuts)
    offset = np.minimum(index[None] * chunk[:, None], shapes[:, None])
    shape = np.minimum(chunk[:, None], shapes[:, None] - offset)
    nbytes = shape.prod(axis=2) * item
    count = len(index)
    return _PartBatch(
        leaf=np.repeat(numbers, count),
        cell=np.tile(np.arange(count), many),
        rank=np.zeros(many * count, np.int64),
        start=np.zeros(many * count, np.int64),
        nbytes=nbytes.reshape(-1),
        offset=offset.reshape(many * count, dims),
        shape=shape.reshape(many * count, dims),
    )


def _divide_among_holders(cells: _PartBatch, holders: Ints) -> _PartBatch:
    """Divide cells among their holders [cells, replicas], by bytes.

    For each cell number, the cells of all leaves form one line, which the cell's holders share.
    """
    count, replicas = holders.shape
    nbytes = cells.nbytes.reshape(-1, count)
    stop = np.cumsum(nbytes, axis=0)
    start, total = (stop - nbytes).reshape(-1), np.maximum(np.tile(stop[-1], len(nbytes)), 1)
    middle = (2 * start + cells.nbytes) * replicas // (2 * total)
    cells = cells._replace(rank=holders[cells.cell, np.minimum(middle, replicas - 1)])
    first = start * replicas // total
    last = np.maximum(start + cells.nbytes - 1, 0) * replicas // total
    large = np.flatnonzero((first != last) & (cells.nbytes >= _SMALLEST_CUT) & (cells.shape > 1).any(axis=1))
    if not len(large):
        return cells
    at, *columns = zip(
        *(piece for one in large.tolist() for piece in _cut_cell(cells, one, holders, start, total)), strict=True
    )
    whole = np.delete(np.arange(len(cells.leaf)), large)
    order = np.argsort(np.concatenate([whole, np.array(at)]), kind="stable")
    return _PartBatch(*(np.concatenate([a[whole], np.array(b)])[order] for a, b in zip(cells, columns, strict=True)))


def _cut_cell(cells: _PartBatch, at: int, holders: Ints, start: Ints, total: Ints) -> Iterator[tuple[object, ...]]:
    """Yield the pieces of cell number ``at`` that its holders write, cut between rows."""
    leaf, cell, _, _, nbytes, offset, shape = (column[at].tolist() for column in cells)
    axis = next(axis for axis, many in enumerate(shape) if many > 1)
    rows, row, replicas = shape[axis], nbytes // shape[axis], holders.shape[1]
    shares = (np.arange(1, replicas) * (total[at] / replicas) - start[at]) / row
    borders = np.clip(np.rint(shares), 0, rows).astype(np.int64).tolist()
    for j, (first, stop) in enumerate(zip([0, *borders], [*borders, rows], strict=True)):
        if first < stop:
            where = [*offset[:axis], offset[axis] + first, *offset[axis + 1 :]]
            size = [*shape[:axis], stop - first, *shape[axis + 1 :]]
            yield at, leaf, cell, int(holders[cell, j]), row * first, row * (stop - first), where, size


def _entry_bound(one: DeclaredArray) -> int:
    """Return the most bytes that the entry of one part of a leaf takes in a header."""
    digits = sum(len(str(many)) for many in one.shape)
    return _ENTRY_BASE + len(json.dumps(one.path)) + 3 * digits + 4 * len(one.shape) + 2 * 16


def total_bytes(declared_arrays: Iterable[DeclaredArray]) -> int:
    """Return the sum of the bytes of all arrays."""
    return sum(math.prod(one.shape) * DTYPES[one.dtype].size for one in declared_arrays)
