"""Check a manifest beyond its types: shards are inside their files, do not overlap, and fill their leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import ShardRun, StoredFile, StoredLeaf
from allranks.extent import Extent

# The most shards that are laid out at once, and that one file may have.
_BATCH = 1 << 21

Integers = NDArray[np.int64]
# The most corners of boxes of one leaf: their coordinates take 8 bytes each, a few times over.
MOST_CORNERS = 1 << 22


class InvalidManifest(ValueError):
    """Raised for an invalid manifest; the message says why. ``leaf``: the path of the faulty array, if any."""

    def __init__(self, what: str, *, leaf: str | None = None) -> None:
        super().__init__(what)
        self.leaf = leaf


def check_leaves(leaves: Mapping[str, StoredLeaf]) -> None:
    """Raise InvalidManifest unless the shards of each leaf hold every element of it exactly once.

    All shards must be inside their leaf.
    """
    for path, leaf in leaves.items():
        try:
            filled = is_leaf_filled_once(leaf.shape, leaf.runs)
        except TooManyBoxes:
            raise InvalidManifest(f"leaf {path!r} has too many irregular shards", leaf=path) from None
        if not filled:
            held = sum(run.count * run.first.extent.size for run in leaf.runs)
            size = int(np.prod(leaf.shape, dtype=object))
            says = f"expected {size} elements, found {held}, " if held != size else "they overlap, "
            raise InvalidManifest(
                f"the shards of leaf {path!r} do not hold each element exactly once: {says}shape {list(leaf.shape)}",
                leaf=path,
            )


@dataclass(frozen=True, slots=True)
class _RunTable:
    """All shard runs of a manifest as columns of numbers, one row for each run.

    File numbers never descend within a run.
    """

    leaf: Sequence[str]
    file: Integers
    begin: Integers
    bytes: Integers
    count: Integers
    file_step: Integers
    begin_step: Integers


def check_files(files: Sequence[StoredFile], leaves: Mapping[str, StoredLeaf]) -> None:
    """Raise InvalidManifest unless every shard is inside its file, and no two shards share a byte.

    The caller must have checked that file numbers are valid, and that no number of a run exceeds 2**63.
    """
    sizes = np.array([file.bytes for file in files], np.int64)
    if not leaves or not len(sizes):
        return
    rows = _table_of_runs(leaves)
    try:
        _check_range(_join_runs(rows), sizes, 0, len(sizes))
    except InvalidManifest:
        _check_range(rows, sizes, 0, len(sizes))
        raise


def _join_runs(rows: _RunTable) -> _RunTable:
    """Return a table with fewer runs for the same bytes: adjacent runs with equal steps are joined."""
    order = np.lexsort((rows.begin, rows.begin_step, rows.file_step, rows.count, rows.file))
    file, begin, many, count = rows.file[order], rows.begin[order], rows.bytes[order], rows.count[order]
    file_step, begin_step = rows.file_step[order], rows.begin_step[order]
    follows = begin[1:] == begin[:-1] + many[:-1]
    for same in (file, count, file_step, begin_step):
        follows &= same[1:] == same[:-1]
    first = np.flatnonzero(np.concatenate([[True], ~follows]))
    leaf = [rows.leaf[i] for i in order[first]]
    joined = np.add.reduceat(many, first)
    return _RunTable(leaf, file[first], begin[first], joined, count[first], file_step[first], begin_step[first])


def _table_of_runs(leaves: Mapping[str, StoredLeaf]) -> _RunTable:
    table = []
    paths = []
    for path, leaf in leaves.items():
        item = DTYPES[leaf.dtype].size
        for run in leaf.runs:
            first, last = run.first, run.count - 1
            at = (first.file, first.begin, run.file_step, run.begin_step)
            if run.file_step < 0:
                at = (
                    first.file + last * run.file_step,
                    first.begin + last * run.begin_step,
                    -run.file_step,
                    -run.begin_step,
                )
            table.append((*at, run.count, first.extent.size * item))
            paths.append(path)
    file, begin, file_step, begin_step, count, many = np.array(table, np.int64).reshape(-1, 6).T.copy()
    return _RunTable(paths, file, begin, many, count, file_step, begin_step)


def _check_range(rows: _RunTable, sizes: Integers, low: int, high: int) -> None:
    """Check the files from ``low`` to ``high``. They are checked in halves if they hold too many shards at once."""
    first, last = _shards_before(rows, low), _shards_before(rows, high)
    many = last - first
    total = int(many.sum())
    if total <= _BATCH:
        _check_batch(rows, sizes, first, many)
    elif high - low > 1:
        middle = (low + high) // 2
        _check_range(rows, sizes, low, middle)
        _check_range(rows, sizes, middle, high)
    else:
        raise InvalidManifest(f"file {low} has {total} shards: expected at most {_BATCH}")


def _shards_before(rows: _RunTable, file: int) -> Integers:
    """Return, for every run, how many of its shards are in files with a number below ``file``."""
    moving = -((rows.file - file) // np.maximum(rows.file_step, 1))
    standing = np.where(rows.file < file, rows.count, 0)
    return np.where(rows.file_step == 0, standing, np.clip(moving, 0, rows.count))


def _check_batch(rows: _RunTable, sizes: Integers, first: Integers, many: Integers) -> None:
    run = np.repeat(np.arange(len(many)), many)
    k = np.arange(len(run)) - np.repeat(np.cumsum(many) - many - first, many)
    file = rows.file[run] + k * rows.file_step[run]
    begin = rows.begin[run] + k * rows.begin_step[run]
    length = rows.bytes[run]
    outside = (begin < 0) | (begin > sizes[file] - length)
    if outside.any():
        i = int(outside.argmax())
        path = rows.leaf[run[i]]
        raise InvalidManifest(
            f"a shard of leaf {path!r} has the bytes {begin[i]} to {begin[i] + length[i]} of file {file[i]}, "
            f"which has {sizes[file[i]]} bytes",
            leaf=path,
        )
    before = np.cumsum(sizes) - sizes
    start = (before[file] + begin)[length > 0]
    stop = np.sort(start + length[length > 0])
    start.sort()
    # No shard begins before all earlier ones have ended: true for the pairs if true for sorted begins and ends.
    shared = stop[:-1] > start[1:]
    if shared.any():
        at = int(start[1:][shared.argmax()])
        where = int(np.searchsorted(before, at, side="right")) - 1
        raise InvalidManifest(f"byte {at - int(before[where])} of file {where} is in more than one shard")


class TooManyBoxes(ValueError):
    """Raised if boxes are so many, and cut along so many dimensions, that no program would have written them."""


def is_leaf_filled_once(shape: tuple[int, ...], runs: tuple[ShardRun, ...]) -> bool:
    """Return whether the shards of a leaf, all inside ``shape``, hold each element exactly once.

    The time grows with the number of runs if their shards are adjacent, otherwise with the number of shards. Raises
    TooIrregular.
    """
    if 0 in shape:
        return True
    if len(runs) == 1 and runs[0].count == 1:
        return runs[0].first.extent.shape == shape
    if sum(run.count * run.first.extent.size for run in runs) != math.prod(shape):
        return False
    rows = [_as_one_box(run) for run in runs]
    boxes = [box for box in rows if box is not None and box.size]
    scattered = [run for run, box in zip(runs, rows, strict=True) if box is None and run.first.extent.size]
    if len(boxes) == 1 and not scattered:
        return boxes[0].shape == shape
    if len(boxes) + sum(run.count for run in scattered) > MOST_CORNERS // max(len(shape), 4):
        raise TooManyBoxes
    low = [np.array([box.offset for box in boxes], np.int64).reshape(len(boxes), len(shape))]
    many = [np.array([box.shape for box in boxes], np.int64).reshape(len(boxes), len(shape))]
    for run in scattered:
        low.append(run.first.extent.offset + np.arange(run.count)[:, None] * np.array(run.offset_step, np.int64))
        many.append(np.broadcast_to(np.array(run.first.extent.shape, np.int64), low[-1].shape))
    offsets = np.concatenate(low)
    return do_boxes_fill_once(shape, offsets, offsets + np.concatenate(many))


def do_boxes_fill_once(shape: tuple[int, ...], box_begins: Integers, box_ends: Integers) -> bool:
    """Return whether the boxes (n rows, one column for each dimension) hold each element of ``shape`` exactly once.

    Count, for each position, the boxes that cover it. The boxes fill the array if this count is 1 inside the array and
    0 outside. Then the differences of the count along all dimensions equal those of the array. They are +1 and -1 at
    the corners of boxes, and must cancel except at the array's own corners. So no two boxes are compared.
    """
    box_begins = np.concatenate([box_begins, np.zeros((1, len(shape)), np.int64)])
    box_ends = np.concatenate([box_ends, np.array([shape], np.int64)])
    cut = np.flatnonzero((box_begins != 0).any(axis=0) | (box_ends != box_ends[-1]).any(axis=0))
    if len(box_begins) << len(cut) > MOST_CORNERS:
        raise TooManyBoxes
    corner = np.zeros(len(box_begins), np.int64)
    sign = np.ones(len(box_begins), np.int64)
    sign[-1] = -1
    box = np.arange(len(box_begins))
    for dimension in cut:
        at = np.concatenate([box_begins[box, dimension], box_ends[box, dimension]])
        places, place = np.unique(at, return_inverse=True)
        corner = np.unique(np.tile(corner, 2) * len(places) + place, return_inverse=True)[1]
        sign = np.concatenate([sign, -sign])
        box = np.tile(box, 2)
    return not _corner_sums(corner, sign).any()


def _corner_sums(corner: Integers, sign: Integers) -> Integers:
    sums = np.zeros(int(corner.max()) + 1, np.int64)
    np.add.at(sums, corner, sign)
    return sums


def _as_one_box(run: ShardRun) -> Extent | None:
    """Return the box that a run's shards form together, if they are adjacent along one dimension; None otherwise."""
    first = run.first.extent
    if run.count == 1:
        return first
    moving = [d for d, step in enumerate(run.offset_step) if step]
    if len(moving) != 1:
        return None
    along = moving[0]
    step, many = run.offset_step[along], first.shape[along]
    if abs(step) != many:
        return None
    offset, shape = list(first.offset), list(first.shape)
    offset[along] += min(step, 0) * (run.count - 1)
    shape[along] *= run.count
    return Extent(tuple(offset), tuple(shape))
