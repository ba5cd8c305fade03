"""The shards of a leaf as arrays of numbers, and as the runs that the manifest has: 10,000 of them in one line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allranks.checkpoint.manifest import Run, Shard
from allranks.extent import Extent

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shards:
    """n shards in order: ``file`` and ``begin`` of n, ``offset`` and ``shape`` of n rows, one column a dimension."""

    file: Integers
    begin: Integers
    offset: Integers
    shape: Integers


def compress(shards: Shards) -> tuple[Run, ...]:
    """Return the shards as runs, in order; each takes in as many as walk on in equal steps and have one shape."""
    count = len(shards.file)
    if not count:
        return ()
    place = np.column_stack([shards.file, shards.begin, shards.offset])
    step = np.diff(place, axis=0)
    alike = (shards.shape[1:] == shards.shape[:-1]).all(axis=1)
    # Step i joins the shards i and i + 1; a turn is where a step is not the one before it again.
    turns = np.flatnonzero((step[1:] != step[:-1]).any(axis=1) | ~alike[1:] | ~alike[:-1]) + 1
    runs, begin = [], 0
    for end in [*turns.tolist(), count - 1]:
        if begin < end:
            last = end if alike[begin] else begin
            runs.append(_run(shards, step, begin, last))
            begin = last + 1
    if begin < count:
        runs.append(_run(shards, step, begin, begin))
    return tuple(runs)


def expand(runs: tuple[Run, ...], dimensions: int) -> Shards:
    """Return every shard of the runs of a leaf: the inverse of ``compress``."""
    file, begin, offset, shape = [], [], [], []
    for run in runs:
        k, first = np.arange(run.count), run.first
        file.append(first.file + k * run.file_step)
        begin.append(first.begin + k * run.begin_step)
        step = np.array(run.offset_step or (0,) * dimensions, np.int64)
        offset.append(np.array(first.extent.offset, np.int64) + k[:, None] * step)
        shape.append(np.broadcast_to(np.array(first.extent.shape, np.int64), (run.count, dimensions)))
    if not runs:
        return Shards(*(np.zeros(0, np.int64),) * 2, *(np.zeros((0, dimensions), np.int64),) * 2)
    return Shards(np.concatenate(file), np.concatenate(begin), np.concatenate(offset), np.concatenate(shape))


def _run(shards: Shards, step: Integers, begin: int, last: int) -> Run:
    extent = Extent(tuple(shards.offset[begin].tolist()), tuple(shards.shape[begin].tolist()))
    first = Shard(int(shards.file[begin]), int(shards.begin[begin]), extent)
    if last == begin:
        return Run(first)
    file_step, begin_step, *offset_step = step[begin].tolist()
    return Run(first, last - begin + 1, file_step, begin_step, tuple(offset_step))
