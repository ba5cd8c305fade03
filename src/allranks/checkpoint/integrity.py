"""What holds in every sound manifest beyond its types: shards lie in their files, apart, and fill their leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allranks.checkpoint.cover import TooIrregular, fills
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import StoredFile, StoredLeaf

# Shards that are laid out at a time, and the most that one file may have.
_BATCH = 1 << 21

Integers = NDArray[np.int64]


class InvalidManifest(ValueError):
    """What is wrong with a manifest; ``leaf`` is the path of the array that it is about."""

    def __init__(self, what: str, *, leaf: str | None = None) -> None:
        super().__init__(what)
        self.leaf = leaf


def check_leaves(leaves: Mapping[str, StoredLeaf]) -> None:
    """Raise Unsound unless the shards of each leaf, all inside of it, hold every element exactly once."""
    for path, leaf in leaves.items():
        try:
            filled = fills(leaf.shape, leaf.runs)
        except TooIrregular:
            raise InvalidManifest(f"leaf {path!r} is cut into too many irregular shards", leaf=path) from None
        if not filled:
            held = sum(run.count * run.first.extent.size for run in leaf.runs)
            size = int(np.prod(leaf.shape, dtype=object))
            says = f"its shards hold {held} elements of {size}, " if held != size else "its shards overlap, "
            raise InvalidManifest(f"leaf {path!r} is not held exactly once: {says}shape {list(leaf.shape)}", leaf=path)


@dataclass(frozen=True, slots=True)
class _Rows:
    """All runs of a manifest, one an entry; steps from file to file are not negative."""

    leaf: Sequence[str]
    file: Integers
    begin: Integers
    bytes: Integers
    count: Integers
    file_step: Integers
    begin_step: Integers


def check_files(files: Sequence[StoredFile], leaves: Mapping[str, StoredLeaf]) -> None:
    """Raise Unsound unless every shard lies inside of its file, and no two share a byte.

    The indices of files must be valid, and no number of a run over 2**63.
    """
    sizes = np.array([file.bytes for file in files], np.int64)
    if not leaves or not len(sizes):
        return
    rows = _rows(leaves)
    try:
        _check_range(_join_runs(rows), sizes, 0, len(sizes))
    except InvalidManifest:
        _check_range(rows, sizes, 0, len(sizes))
        raise


def _join_runs(rows: _Rows) -> _Rows:
    """The same bytes of the same files in fewer runs: those that walk alike, one behind the other, are one."""
    order = np.lexsort((rows.begin, rows.begin_step, rows.file_step, rows.count, rows.file))
    file, begin, many, count = rows.file[order], rows.begin[order], rows.bytes[order], rows.count[order]
    file_step, begin_step = rows.file_step[order], rows.begin_step[order]
    follows = begin[1:] == begin[:-1] + many[:-1]
    for same in (file, count, file_step, begin_step):
        follows &= same[1:] == same[:-1]
    first = np.flatnonzero(np.concatenate([[True], ~follows]))
    leaf = [rows.leaf[i] for i in order[first]]
    joined = np.add.reduceat(many, first)
    return _Rows(leaf, file[first], begin[first], joined, count[first], file_step[first], begin_step[first])


def _rows(leaves: Mapping[str, StoredLeaf]) -> _Rows:
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
    return _Rows(paths, file, begin, many, count, file_step, begin_step)


def _check_range(rows: _Rows, sizes: Integers, low: int, high: int) -> None:
    """Check the files from ``low`` to ``high``, in parts where they hold too many shards to lay out at once."""
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
        raise InvalidManifest(f"file {low} has {total} shards, more than {_BATCH}")


def _shards_before(rows: _Rows, file: int) -> Integers:
    """Of every run, how many of its shards stand in files before this one."""
    moving = -((rows.file - file) // np.maximum(rows.file_step, 1))
    standing = np.where(rows.file < file, rows.count, 0)
    return np.where(rows.file_step == 0, standing, np.clip(moving, 0, rows.count))


def _check_batch(rows: _Rows, sizes: Integers, first: Integers, many: Integers) -> None:
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
            f"which has {sizes[file[i]]}",
            leaf=path,
        )
    before = np.cumsum(sizes) - sizes
    start = (before[file] + begin)[length > 0]
    stop = np.sort(start + length[length > 0])
    start.sort()
    # Nobody begins before all that began earlier have ended: said of sorted begins and ends, it is said of the pairs.
    shared = stop[:-1] > start[1:]
    if shared.any():
        at = int(start[1:][shared.argmax()])
        where = int(np.searchsorted(before, at, side="right")) - 1
        raise InvalidManifest(f"byte {at - int(before[where])} of file {where} is in more than one shard")
