"""What the outlook says of an epoch is what the plan then gives to the ranks."""

from __future__ import annotations

import time

import numpy as np
import pytest
from blocks import index_of, uneven
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.data.plan import EpochPlan, IndexLayout, choose_layout, divisors, rows_of_rank
from allranks.data.plan_summary import count_files, mixing_ratio, stream_coverage, streams_of_rank, summarize_plan
from allranks.errors import DataError


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_samples_padding_and_blocks_are_those_of_the_plan(data: st.DataObject) -> None:
    """For any sizes: counted from the ids of every rank, and from the pieces of every window."""
    index = uneven(data.draw(st.integers(1, 400)), seed=data.draw(st.integers(0, 9)))
    batch = data.draw(st.integers(1, 24))
    streams, ranks = (data.draw(st.sampled_from(divisors(batch))) for _ in range(2))
    tail = data.draw(st.sampled_from(["pad", "drop"]))
    shuffle = data.draw(st.booleans())
    plan = EpochPlan(index, IndexLayout(batch, streams, data.draw(st.integers(1, 5)), 0, shuffle, tail), 0)
    found = summarize_plan(plan, ranks)
    for rank in range(ranks):
        ids = plan.row_ids(rows_of_rank(rank, ranks, batch), 0, plan.steps)
        assert (found.samples[rank], found.padding[rank]) == ((ids >= 0).sum(), (ids < 0).sum())
        mine = streams_of_rank(plan, rank, ranks)
        pieces = [piece for stream in mine for piece in pieces_of(plan, stream)]
        assert (found.streams[rank], found.blocks[rank]) == (len(mine), len(pieces))
        assert count_files(plan, mine) == len({int(index.file[piece.block]) for piece in pieces})


def pieces_of(plan: EpochPlan, stream: int) -> list:
    depth, found = 0, []
    while depth < plan.stream_length(stream):
        window = plan.window_at(stream, depth)
        found += window.pieces
        depth = window.end
    return found


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_picture_is_that_of_the_samples(data: st.DataObject) -> None:
    """Every cell is the share of its samples that the streams have, to the last sample."""
    index = uneven(data.draw(st.integers(8, 300)), seed=data.draw(st.integers(0, 9)))
    streams = data.draw(st.integers(1, 8))
    plan = EpochPlan(index, IndexLayout(streams, streams, 3, 1, data.draw(st.booleans())), 0)
    first = data.draw(st.integers(0, streams - 1))
    some = range(first, data.draw(st.integers(first + 1, streams)))
    cells = data.draw(st.integers(1, 8))
    taken = np.zeros(plan.samples)
    for stream in some:
        taken[plan.stream_ids(stream, 0, plan.stream_length(stream))] = 1
    cumulated = np.concatenate([[0], np.cumsum(taken)])
    edges = np.linspace(0, plan.samples, cells + 1)
    wanted = np.diff(np.interp(edges, np.arange(plan.samples + 1), cumulated)) / np.diff(edges)
    assert np.allclose(stream_coverage(plan, some, cells), wanted)


def test_a_shuffled_plan_begins_everywhere_and_one_that_is_not_with_its_streams() -> None:
    index = index_of([50] * 4000)
    shuffled = EpochPlan(index, choose_layout(index, global_batch=96, seed=0, shuffle=True), 0)
    assert mixing_ratio(shuffled) >= 0.95
    in_order = EpochPlan(index, IndexLayout(8, 8, 32, 0, False), 0)
    assert mixing_ratio(in_order) <= 0.17


def test_a_rank_of_ten_thousand_is_told_of_without_the_others() -> None:
    """A hundred million samples in a hundred thousand blocks, 10,000 ranks: seconds, not minutes."""
    index = index_of([1000] * 100_000)
    began = time.monotonic()
    plan = EpochPlan(index, choose_layout(index, global_batch=40_000, seed=0, shuffle=True), 0)
    found = summarize_plan(plan, 10_000)
    assert found.samples.sum() == plan.samples
    assert mixing_ratio(plan) > 0.9
    assert time.monotonic() - began < 60


def test_ranks_that_do_not_divide_the_batch_are_refused() -> None:
    index = index_of([50] * 40)
    with pytest.raises(DataError, match="does not divide over 7 ranks"):
        summarize_plan(EpochPlan(index, choose_layout(index, global_batch=24, seed=0, shuffle=True), 0), 7)


def test_streams_without_samples_read_no_file() -> None:
    """Two samples on nine streams: each rank's files are those of the streams that have one."""
    plan = EpochPlan(uneven(2, seed=0), IndexLayout(9, 9, 1, 0, False, "pad"), 0)
    held = [sum(len(pieces_of(plan, stream)) > 0 for stream in range(at, at + 3)) for at in (0, 3, 6)]
    assert sum(held) == 2
    assert [count_files(plan, range(at, at + 3)) for at in (0, 3, 6)] == held
