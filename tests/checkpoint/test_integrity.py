"""Exact cover, against counting every element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.checkpoint.integrity import TooManyBoxes, is_leaf_filled_once
from allranks.checkpoint.manifest import Shard, ShardRun
from allranks.extent import Extent


def runs_of(boxes: list[Extent]) -> tuple[ShardRun, ...]:
    return tuple(ShardRun(Shard(0, 0, box)) for box in boxes)


def split(data: st.DataObject, box: Extent, times: int) -> list[Extent]:
    """A box cut at random places, the pieces again: no grid."""
    wide = [d for d, n in enumerate(box.shape) if n > 1]
    if not times or not wide:
        return [box]
    d = data.draw(st.sampled_from(wide))
    cut = data.draw(st.integers(1, box.shape[d] - 1))
    one = Extent(box.offset, (*box.shape[:d], cut, *box.shape[d + 1 :]))
    beyond = (*box.offset[:d], box.offset[d] + cut, *box.offset[d + 1 :])
    other = Extent(beyond, (*box.shape[:d], box.shape[d] - cut, *box.shape[d + 1 :]))
    return split(data, one, times - 1) + split(data, other, times - 1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=4).map(tuple), st.data())
def test_irregular_boxes_fill_an_array_exactly_if_every_element_is_in_one(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    """Pieces of the whole do; with one lost, doubled or moved, as the count of every element says."""
    boxes = split(data, Extent.of_shape(shape), 3)
    assert is_leaf_filled_once(shape, runs_of(boxes))
    i = data.draw(st.integers(0, len(boxes) - 1))
    fault = data.draw(st.sampled_from(["lost", "doubled", "moved"]))
    if fault == "lost":
        del boxes[i]
    elif fault == "doubled":
        boxes.append(boxes[i])
    else:
        free = [data.draw(st.integers(0, n - m)) for n, m in zip(shape, boxes[i].shape, strict=True)]
        boxes[i] = Extent(tuple(free), boxes[i].shape)
    count = np.zeros(shape, int)
    for box in boxes:
        count[box.slices] += 1
    assert is_leaf_filled_once(shape, runs_of(boxes)) == bool((count == 1).all())


@settings(deadline=None)
@given(st.data())
def test_rows_of_boxes_fill_as_their_boxes_do(data: st.DataObject) -> None:
    """Runs that touch, that leave gaps, that go backwards, that go diagonally."""
    shape = (data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8)))
    runs = []
    for _ in range(data.draw(st.integers(1, 3))):
        many = tuple(data.draw(st.integers(1, n)) for n in shape)
        count = data.draw(st.integers(2, 4))
        low = [data.draw(st.integers(0, n - m)) for n, m in zip(shape, many, strict=True)]
        high = [data.draw(st.integers(0, n - m)) for n, m in zip(shape, many, strict=True)]
        step = tuple(int((b - a) / (count - 1)) for a, b in zip(low, high, strict=True))  # never beyond ``high``
        runs.append(ShardRun(Shard(0, 0, Extent(tuple(low), many)), count, 0, 0, step))
    counted = np.zeros(shape, int)
    for run in runs:
        for shard in run:
            counted[shard.extent.slices] += 1
    assert is_leaf_filled_once(shape, tuple(runs)) == bool((counted == 1).all())


@pytest.mark.parametrize("step", [3, -3])
def test_a_row_that_touches_is_one_box(step: int) -> None:
    """However many shards it has: a hundred million take no time."""
    count = 10**8
    begin = 0 if step > 0 else 3 * (count - 1)
    row = ShardRun(Shard(0, 0, Extent((begin, 0), (3, 7))), count, 0, 0, (step, 0))
    assert is_leaf_filled_once((3 * count, 7), (row,))
    assert is_leaf_filled_once((3 * count + 2, 7), (row, *runs_of([Extent((3 * count, 0), (2, 7))])))
    assert not is_leaf_filled_once((3 * count + 2, 7), (row, *runs_of([Extent((3 * count - 1, 0), (2, 7))])))


def test_a_grid_of_ten_thousand_cells_is_filled() -> None:
    """And is not once a cell is moved by one."""
    cells = [Extent((7 * i, 9 * j, 0), (7, 9, 5)) for i in range(100) for j in range(100)]
    assert is_leaf_filled_once((700, 900, 5), runs_of(cells))
    cells[4321] = Extent((7 * 43 + 1, 9 * 21, 0), (7, 9, 5))
    assert not is_leaf_filled_once((700, 900, 5), runs_of(cells))


def test_what_would_take_forever_is_refused() -> None:
    """A hundred million boxes that do not touch, or boxes cut in 30 dimensions, of as many elements as the leaf."""
    scattered = ShardRun(Shard(0, 0, Extent((0,), (1,))), 10**8, 0, 0, (2,))
    with pytest.raises(TooManyBoxes):
        is_leaf_filled_once((2 * 10**8,), (scattered, scattered))
    halves = [Extent((0,) * 31, (1, *(1 if k == d else 2 for k in range(30)))) for d in range(30)]
    with pytest.raises(TooManyBoxes):
        is_leaf_filled_once((15, *(2,) * 30), runs_of(halves))
    assert sum(half.size for half in halves) == 15 * 2**30


def test_a_leaf_of_another_size_is_refused_at_once() -> None:
    """Whatever the boxes are: counting their elements is enough."""
    assert not is_leaf_filled_once((10**9,), (ShardRun(Shard(0, 0, Extent((0,), (1,))), 10**8, 0, 0, (2,)),))
