"""Shards as runs: nothing is lost, and what is regular takes one line."""

from __future__ import annotations

from dataclasses import astuple
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.checkpoint.manifest import Shard, ShardRun, ShardTable, compress_shards, expand_runs
from allranks.extent import Extent

NUMBERS = st.integers(0, 3)


@settings(deadline=None)
@given(st.integers(0, 3), st.data())
def test_expanding_the_runs_gives_the_shards_back(dimensions: int, data: st.DataObject) -> None:
    """In their order; and no run could have taken in the shard that follows it."""
    row = st.tuples(NUMBERS, NUMBERS, *[NUMBERS] * (2 * dimensions))
    # Regular pieces between irregular ones, as a grid has them.
    rows: list[tuple[int, ...]] = []
    for _ in range(data.draw(st.integers(0, 4))):
        start, step, count = data.draw(row), data.draw(row), data.draw(st.integers(1, 4))
        still = (*step[: 2 + dimensions], *[0] * dimensions)
        rows += [tuple(a + k * b for a, b in zip(start, still, strict=True)) for k in range(count)]
    table = np.array(rows, np.int64).reshape(len(rows), 2 + 2 * dimensions)
    shards = ShardTable(table[:, 0], table[:, 1], table[:, 2 : 2 + dimensions], table[:, 2 + dimensions :])
    runs = compress_shards(shards)
    for mine, back in zip(astuple(shards), astuple(expand_runs(runs, dimensions)), strict=True):
        np.testing.assert_array_equal(mine, back)
    listed = [shard for run in runs for shard in run]
    assert [(s.file, s.begin, *s.extent.offset, *s.extent.shape) for s in listed] == rows
    for run, after in pairwise(runs):
        [*_, beyond] = ShardRun(run.first, run.count + 1, run.file_step, run.begin_step, run.offset_step)
        assert beyond != after.first or run.count == 1


def test_rows_over_ten_thousand_ranks_are_two_runs() -> None:
    """The last row is smaller."""
    count = 10_000
    at = np.arange(count)
    shape = np.tile([8, 4], (count, 1))
    shape[-1] = [5, 4]
    runs = compress_shards(ShardTable(at, np.full(count, 4096), np.column_stack([8 * at, 0 * at]), shape))
    assert runs == (
        ShardRun(Shard(0, 4096, Extent((0, 0), (8, 4))), 9_999, 1, 0, (8, 0)),
        ShardRun(Shard(9_999, 4096, Extent((79_992, 0), (5, 4)))),
    )
