"""Mixtures: exact shares, every sample as often as its part was begun, and any position in one step."""

from __future__ import annotations

import numpy as np
import pytest
from blocks import index_of, uneven
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.data.mix import CYCLE, MixPlan, quotas_of_weights
from allranks.data.plan import IndexLayout, divisors, rows_of_rank
from allranks.errors import DataError


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_quotas_are_the_weights_to_one_position(weights):
    """The quotas make a whole cycle, each within one position of its weight, and none is without any."""
    many = quotas_of_weights(weights)
    assert sum(many) == CYCLE
    assert min(many) >= 1
    small = sum(weight / sum(weights) * CYCLE < 1 for weight in weights)
    for quota, weight in zip(many, weights, strict=True):
        assert abs(quota - weight / sum(weights) * CYCLE) <= 1 + small


@pytest.mark.parametrize("weights", [[], [1, 0], [1, -1], [float("inf")], [float("nan")]])
def test_what_is_no_weight_is_refused(weights):
    """A mixture without parts, or with weights that say nothing, is an error."""
    with pytest.raises(DataError, match="weights of a mixture"):
        quotas_of_weights(weights)


def mixture(epoch=0, *, stop="first", weights=(0.7, 0.3), sizes=(5003, 777), how=None):
    indexes = [uneven(samples, seed=number) for number, samples in enumerate(sizes)]
    return MixPlan(indexes, weights, how or IndexLayout(24, 12, 4, 7, True), epoch, stop=stop)


def everything(plan):
    return plan.row_ids(range(plan.layout.global_batch), 0, plan.steps)


def test_no_sample_a_second_time_before_all_of_its_part():
    """Over epochs a part is read on, not from its start: its samples are taken equally often, but for streams' ends."""
    taken = np.concatenate([everything(mixture(epoch)).ravel() for epoch in range(4)])
    for begin, end in ((0, 5003), (5003, 5780)):
        often = np.bincount(taken[(taken >= begin) & (taken < end)] - begin, minlength=end - begin)
        assert often.max() - often.min() <= 2  # streams end their turn of a part at slightly different steps
    assert (taken < 5003).mean() == pytest.approx(0.7, abs=0.02)


def test_a_cycle_has_every_part_as_often_as_its_quota():
    """In each cycle of a stream the parts' shares are exact."""
    plan = mixture(stop="all", sizes=(50_000, 20_000))
    turns = plan.mix_positions(3, np.arange(2 * CYCLE))
    for cycle in (turns.part[:CYCLE], turns.part[CYCLE:]):
        assert tuple(np.bincount(cycle).tolist()) == plan.quotas


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 3), st.sampled_from(["first", "all"]), st.integers(0, 100))
def test_the_same_global_batches_on_every_world_size_from_any_step(epoch, stop, step):
    """Ranks' rows make the same global batch for all numbers of ranks; a step is the same, wherever one begins."""
    plan = mixture(epoch, stop=stop)
    batch, ids = plan.layout.global_batch, everything(plan)
    for size in divisors(batch)[::3]:
        parts = [plan.row_ids(rows_of_rank(rank, size, batch), 0, plan.steps) for rank in range(size)]
        assert np.array_equal(np.concatenate(parts, 1), ids)
    step %= plan.steps
    assert np.array_equal(plan.row_ids(range(batch), step, step + 1)[0], ids[step])


def test_epochs_end_with_the_first_part_or_with_all():
    """``first``: no part twice in an epoch. ``all``: every sample of every part at least once."""
    first = everything(mixture(stop="first"))
    assert np.bincount(first.ravel()).max() <= 2
    every = everything(mixture(stop="all"))
    assert len(np.unique(every)) >= 0.99 * 5780


def test_a_part_smaller_than_the_streams_is_refused():
    """A part of which some streams would have nothing is an error that says what to do."""
    with pytest.raises(DataError, match=r"part 1 of the mixture has 5 samples, fewer than the 12 streams.*streams=1"):
        MixPlan([index_of([20] * 10), index_of([5])], [1, 1], IndexLayout(24, 12, 4, 0, True), 0, stop="first")
