"""Whether boxes fill an array exactly: every element once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allranks.checkpoint.manifest import Run
from allranks.extent import Extent

Integers = NDArray[np.int64]

# What a look at one leaf may take: corners of boxes and their coordinates, 8 bytes each, a few times over.
MOST_CORNERS = 1 << 23


class TooIrregular(ValueError):
    """So many boxes, cut in so many dimensions, that nobody would have written them."""


def fills(shape: tuple[int, ...], runs: tuple[Run, ...]) -> bool:
    """Return whether the shards, all inside ``shape``, hold each of its elements exactly once.

    Takes time by the number of runs where they are rows that touch, of shards where they are not. Raises TooIrregular.
    """
    if 0 in shape:
        return True
    if len(runs) == 1 and runs[0].count == 1:
        return runs[0].first.extent.shape == shape
    rows = [_as_one_box(run) for run in runs]
    boxes = [box for box in rows if box is not None and box.size]
    scattered = [run for run, box in zip(runs, rows, strict=True) if box is None and run.first.extent.size]
    if len(boxes) == 1 and not scattered:
        return boxes[0].shape == shape
    if len(boxes) + sum(run.count for run in scattered) > MOST_CORNERS // max(len(shape), 4):
        raise TooIrregular
    low = [np.array([box.offset for box in boxes], np.int64).reshape(len(boxes), len(shape))]
    many = [np.array([box.shape for box in boxes], np.int64).reshape(len(boxes), len(shape))]
    for run in scattered:
        low.append(run.first.extent.offset + np.arange(run.count)[:, None] * np.array(run.offset_step, np.int64))
        many.append(np.broadcast_to(np.array(run.first.extent.shape, np.int64), low[-1].shape))
    offsets = np.concatenate(low)
    return fill_exactly(shape, offsets, offsets + np.concatenate(many))


def fill_exactly(shape: tuple[int, ...], begins: Integers, ends: Integers) -> bool:
    """Return whether the boxes, n rows of one column a dimension, hold each element of ``shape`` (some) exactly once.

    The sum of the boxes is 1 on the array and 0 outside of it if and only if its difference along every dimension is
    that of the array: +1 and -1 at the corners of boxes, which must cancel but for those of the array. So no pair of
    boxes is ever compared.
    """
    begins = np.concatenate([begins, np.zeros((1, len(shape)), np.int64)])
    ends = np.concatenate([ends, np.array([shape], np.int64)])
    cut = np.flatnonzero((begins != 0).any(axis=0) | (ends != ends[-1]).any(axis=0))
    if len(begins) << len(cut) > MOST_CORNERS:
        raise TooIrregular
    corner = np.zeros(len(begins), np.int64)
    sign = np.ones(len(begins), np.int64)
    sign[-1] = -1
    box = np.arange(len(begins))
    for dimension in cut:
        at = np.concatenate([begins[box, dimension], ends[box, dimension]])
        places, place = np.unique(at, return_inverse=True)
        corner = np.unique(np.tile(corner, 2) * len(places) + place, return_inverse=True)[1]
        sign = np.concatenate([sign, -sign])
        box = np.tile(box, 2)
    return not _sums(corner, sign).any()


def _sums(corner: Integers, sign: Integers) -> Integers:
    sums = np.zeros(int(corner.max()) + 1, np.int64)
    np.add.at(sums, corner, sign)
    return sums


def _as_one_box(run: Run) -> Extent | None:
    """The union of a run whose shards touch in a row along one dimension, None for any other run."""
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
