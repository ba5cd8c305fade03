"""Every sample once, in equal steps, on any number of ranks: shown of the plan alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from blocks import index_of, uneven
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.data import ledger
from allranks.data.plan import EpochPlan, IndexLayout, choose_layout, divisors, rows_of_rank
from allranks.errors import DataError

GOLDEN = [
    [33, 35, 22, 25, 15, 16],
    [28, 32, 26, 24, 7, 13],
    [29, 30, 1, 23, 14, 10],
    [31, 34, 2, 21, 12, 11],
    [27, 0, 4, 6, 18, 19],
    [8, 9, 3, 5, 17, 20],
]
GOLDEN_DIGEST = "ce54a2fe8ff0e07e"


@st.composite
def plans(draw):
    rows = draw(st.lists(st.integers(1, 30), min_size=1, max_size=40))
    batch = draw(st.integers(1, 24))
    streams = draw(st.sampled_from(divisors(batch)))
    how = IndexLayout(
        batch,
        streams,
        draw(st.integers(1, 6)),
        draw(st.integers(0, 3)),
        draw(st.booleans()),
        draw(st.sampled_from(["pad", "drop"])),
    )
    return EpochPlan(index_of(rows), how, draw(st.integers(0, 2)))


@settings(max_examples=200, deadline=None)
@given(plans())
def test_every_sample_once_whatever_the_sizes(plan):
    """All samples are in the epoch once; or all but those that make no whole batch, where these are dropped."""
    ids = plan.row_ids(range(plan.layout.global_batch), 0, plan.steps)
    taken = np.sort(ids[ids >= 0])
    assert len(np.unique(taken)) == len(taken)
    if plan.layout.tail == "pad":
        assert taken.tolist() == list(range(plan.samples))
        assert plan.steps == -(-plan.samples // plan.layout.global_batch)
    else:
        assert (ids >= 0).all()
        assert plan.steps == plan.samples // plan.layout.global_batch


@settings(max_examples=100, deadline=None)
@given(plans())
def test_the_same_global_batches_on_every_world_size(plan):
    """The ranks' rows, side by side, are the global batch, whatever number of ranks divides it; from any step on."""
    batch = plan.layout.global_batch
    ids = plan.row_ids(range(batch), 0, plan.steps)
    for size in divisors(batch):
        parts = [plan.row_ids(rows_of_rank(rank, size, batch), 0, plan.steps) for rank in range(size)]
        assert np.array_equal(np.concatenate(parts, 1), ids)
    for step in range(plan.steps):
        assert np.array_equal(plan.row_ids(range(batch), step, step + 1), ids[step : step + 1])


@settings(max_examples=100, deadline=None)
@given(plans())
def test_a_ledger_of_the_plan_is_the_sum_of_all_ids(plan):
    """The sum over the plan's rows is the sum over the ids, which knows nothing of the plan."""
    if plan.layout.tail == "pad":
        ids = plan.row_ids(range(plan.layout.global_batch), 0, plan.steps)
        assert ledger.sum_of_ids(ids) == ledger.sum_of_range(0, plan.samples)


@settings(max_examples=60, deadline=None)
@given(plans())
def test_windows_tile_their_stream(plan):
    """Every depth of a stream lies in one window, which is the same from whatever depth it is asked for."""
    for stream in range(plan.layout.streams):
        depth = 0
        while depth < plan.stream_length(stream):
            window = plan.window_at(stream, depth)
            assert window.begin == depth
            last = plan.window_at(stream, window.end - 1)
            assert (last.begin, last.end, last.pieces) == (window.begin, window.end, window.pieces)
            assert sorted(window.order.tolist()) == list(range(window.end - window.begin))
            depth = window.end
        assert depth == plan.stream_length(stream)


@pytest.mark.parametrize("samples", [93, 94, 95, 96, 97, 189, 190, 191, 192])
def test_ranks_do_not_disagree_about_the_last_step(samples):
    """Just below a whole number of batches all ranks take equal steps (an elastic iterator we know: 1, 1, 1, 0)."""
    plan = EpochPlan(uneven(samples), IndexLayout(96, 96, 4, 0, True), 0)
    steps = {len(plan.row_ids(rows_of_rank(rank, 4, 96), 0, plan.steps)) for rank in range(4)}
    assert steps == {-(-samples // 96)}


def test_ranks_read_their_share():
    """Ranks read each block 1.1 times at most together, also where their number does not divide anything."""
    index = uneven(20_000)
    plan = EpochPlan(index, choose_layout(index, global_batch=24, seed=0, shuffle=True), 0)
    for size in (3, 4, 8):
        for rank in range(size):
            streams = {row // plan.layout.depth_of_step for row in rows_of_rank(rank, size, 24)}
            read = sum(len(window.pieces) for stream in streams for window in _windows(plan, stream))
            assert read <= 1.1 * len(index) / size


def test_epochs_and_seeds_have_other_orders():
    """Epoch 1 of seed 0 is not epoch 0 of seed 1, nor anything else we have seen."""
    index = uneven(1000)
    seen = {
        tuple(EpochPlan(index, IndexLayout(8, 8, 4, seed, True), epoch).row_ids(range(8), 0, 20).ravel())
        for seed, epoch in itertools.product(range(5), range(5))
    }
    assert len(seen) == 25


def test_unshuffled_streams_are_in_the_order_of_the_files():
    """Without a shuffle, one stream is the files from the first sample to the last; every epoch is the same."""
    index = uneven(100)
    for epoch in (0, 1):
        ids = EpochPlan(index, IndexLayout(4, 1, 4, 0, False), epoch).row_ids(range(4), 0, 25)
        assert ids.ravel().tolist() == list(range(100))


def test_a_little_of_the_epoch_touches_much_of_the_corpus():
    """The first 1 % of an epoch touches as much of the corpus as 64 KB blocks and the default layout allow."""
    index = index_of([250] * 4000)
    plan = EpochPlan(index, IndexLayout(96, 96, 32, 0, True), 0)
    ids = plan.row_ids(range(96), 0, 104)
    assert len(np.unique(ids * 1000 // plan.samples)) >= 950


def test_orders_are_those_of_the_first_release():
    """A changed order would change what every running job has read: these numbers must never change."""
    plan = EpochPlan(index_of([3, 5, 2, 7, 4, 6, 1, 8]), IndexLayout(6, 3, 2, 7, True), 2)
    assert plan.row_ids(range(6), 0, plan.steps).tolist() == GOLDEN
    assert plan.digest() == GOLDEN_DIGEST


def test_a_layout_that_cannot_be_says_which_can():
    """Batches that do not divide over ranks or streams name the numbers that do."""
    with pytest.raises(
        DataError, match=r"rank 2: a global batch of 96 rows does not divide over 5 ranks.*1, 2, 3, 4, 6, 8"
    ):
        rows_of_rank(2, 5, 96)
    with pytest.raises(DataError, match=r"streams=5 .*1, 2, 3, 4, 6"):
        IndexLayout(12, 5, 4, 0, True)
    with pytest.raises(DataError, match="global_batch=0"):
        IndexLayout(0, 1, 4, 0, True)


def test_few_blocks_make_few_streams():
    """There are as many streams as 20 blocks each allow, so that little is read twice; one at least."""
    assert choose_layout(index_of([10] * 508), global_batch=96, seed=0, shuffle=True).streams == 24
    assert choose_layout(index_of([10] * 5000), global_batch=96, seed=0, shuffle=True).streams == 96
    assert choose_layout(index_of([10] * 3), global_batch=96, seed=0, shuffle=True).streams == 1


def _windows(plan, stream):
    depth = 0
    while depth < plan.stream_length(stream):
        window = plan.window_at(stream, depth)
        yield window
        depth = window.end
