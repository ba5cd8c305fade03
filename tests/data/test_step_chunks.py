"""Strips hand out what the plan says, from any step on, reading each block once and only shortly before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from blocks import Numbers, index_of, uneven
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.data.mix import MixPlan
from allranks.data.plan import EpochPlan, IndexLayout, choose_layout, divisors
from allranks.data.step_chunks import PADDING, SampleDecoder, locate_step_chunks
from allranks.data.streams import MixStream, SampleStream


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(2) as made:
        yield made


def samples_of(chunk):
    found = chunk.located
    return SampleDecoder(found.blocks).decode_samples(found.keys.ravel(), found.positions.ravel())


def taken(plan, rows, steps, pool, *, sample_bytes=100.0):
    """What strips yield: samples and ids, both (steps, rows)."""
    reader = Numbers(plan.index)
    samples, ids, left = [], [], steps
    for chunk in locate_step_chunks(
        plan,
        rows,
        steps,
        open_stream=lambda stream: SampleStream(plan, stream, reader=reader, pool=pool),
        sample_bytes=sample_bytes,
    ):
        found = chunk.located
        assert chunk.steps == left[: len(found.ids)]
        left = left[len(found.ids) :]
        ids.append(found.ids)
        samples += [-1 if one is PADDING else one for one in samples_of(chunk)]
    whole = np.concatenate(ids) if ids else np.empty((0, len(rows)), np.int64)
    return np.array(samples, np.int64).reshape(whole.shape), whole, reader


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_samples_are_those_of_the_plan(data, pool):
    """Whatever rows and steps a rank has: samples and ids are the plan's, padding where that has ended."""
    index = uneven(data.draw(st.integers(1, 400)), seed=data.draw(st.integers(0, 9)))
    start = data.draw(st.integers(0, index.samples - 1))
    index = index.slice(start, index.samples)
    batch = data.draw(st.integers(1, 12))
    how = IndexLayout(batch, data.draw(st.sampled_from(divisors(batch))), data.draw(st.integers(1, 5)), 0, True)
    plan = EpochPlan(index, how, 0)
    rows = sorted(data.draw(st.sets(st.integers(0, batch - 1), min_size=1)))
    begin, every = data.draw(st.integers(0, plan.steps)), data.draw(st.integers(1, 4))
    samples, ids, _ = taken(plan, rows, range(begin, plan.steps, every), pool)
    assert np.array_equal(ids, plan.row_ids(rows, begin, plan.steps)[::every])
    assert np.array_equal(samples, ids)


def test_a_rank_reads_its_streams_and_every_block_of_them_once(pool):
    """A quarter of the rows costs a quarter of the blocks, but for those where a stream begins or ends."""
    index = uneven(10_000)
    plan = EpochPlan(index, choose_layout(index, global_batch=24, seed=0, shuffle=True), 0)
    _, _, reader = taken(plan, range(6), range(plan.steps), pool)
    assert max(reader.reads) <= 2
    assert sum(reader.reads) <= 1.1 * len(index) / 4


def test_the_first_step_needs_one_block_of_every_stream(pool):
    """The first batch, also in the middle of the epoch, waits for the blocks of two steps, not for windows."""
    index = index_of([50] * 2000)
    plan = EpochPlan(index, IndexLayout(8, 8, 32, 0, True), 0)
    for begin in (0, plan.steps * 4 // 5):
        reader = Numbers(index)
        made = locate_step_chunks(
            plan,
            range(8),
            range(begin, plan.steps),
            open_stream=lambda stream, reader=reader: SampleStream(plan, stream, reader=reader, pool=pool),
            sample_bytes=100.0,
        )
        next(made)
        pool.submit(lambda: None).result()  # what was asked for before has been begun
        assert sum(reader.reads) <= 8 * 3


def test_large_samples_make_short_strips(pool):
    """A strip of large samples is short: memory is bounded by bytes, not by a number of steps."""
    index = index_of([1] * 64, sample_bytes=4 << 20)
    plan = EpochPlan(index, IndexLayout(2, 2, 4, 0, True), 0)
    lengths = [
        len(chunk.steps)
        for chunk in locate_step_chunks(
            plan,
            range(2),
            range(plan.steps),
            open_stream=lambda stream: SampleStream(plan, stream, reader=Numbers(index), pool=pool),
            sample_bytes=4 << 20,
        )
    ]
    assert max(lengths) == 1


def test_a_mixture_hands_out_what_its_plan_says(pool):
    """Samples of all parts, through several epochs of the smaller one, are those of the mixture's plan."""
    indexes = [uneven(2000, seed=1), uneven(150, seed=2)]
    plan = MixPlan(indexes, [1, 1], IndexLayout(12, 6, 3, 0, True), 1, stop="all")
    readers = [Numbers(index) for index in indexes]
    ids, samples = [], []
    steps = range(5, plan.steps)
    for chunk in locate_step_chunks(
        plan,
        range(4, 12),
        steps,
        open_stream=lambda stream: MixStream(plan, stream, readers=readers, pool=pool),
        sample_bytes=100,
    ):
        ids.append(chunk.located.ids)
        samples += samples_of(chunk)
    found = np.concatenate(ids)
    assert np.array_equal(found, plan.row_ids(range(4, 12), 5, plan.steps))
    assert np.array_equal(np.array(samples).reshape(found.shape), np.where(found >= 2000, found - 2000, found))


def test_an_error_of_the_reader_is_raised_where_its_sample_was_due(pool):
    """A block that cannot be read stops the strip that needs it."""

    class Broken(Numbers):
        def read(self, block):
            raise OSError(f"block {block}")

    index = uneven(100)
    plan = EpochPlan(index, IndexLayout(4, 2, 4, 0, True), 0)
    made = locate_step_chunks(
        plan,
        range(4),
        range(plan.steps),
        open_stream=lambda stream: SampleStream(plan, stream, reader=Broken(index), pool=pool),
        sample_bytes=100,
    )
    with pytest.raises(OSError, match="block"):
        next(made)
