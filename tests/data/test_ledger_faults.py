"""A ledger finds whatever was read twice, lost or replaced, and says where."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import go_on, plan_of, read

from allranks import SimulatedWorld, World
from allranks.data import plan as plans
from allranks.data.audit import verify_epoch
from allranks.data.gaps import LedgerGap, find_gaps
from allranks.data.ledger import (
    Ledger,
    SampleSum,
    dropped_sum,
    mix_ids,
    planned_sum,
    sum_of_ids,
    sum_of_range,
    sums_of_batches,
    unmix_ids,
)
from allranks.errors import LedgerMismatch, Mismatch

FAULTS = ("lost", "twice", "replaced", "neighbour")


def spoil(ids: np.ndarray, step: int, kind: str, draw: random.Random, samples: int) -> tuple[list[int], list[int]]:
    """Change what was taken at a step; return which ids are lost by that, and which extra."""
    row = draw.randrange(ids.shape[1])
    old = int(ids[step, row])
    if kind == "lost":
        ids[step, row] = -1
        return [old], []
    if kind == "twice":
        ids[step] = np.where(np.arange(ids.shape[1]) == (row + 1) % ids.shape[1], old, ids[step])
        return [int(planned_ids[step, (row + 1) % ids.shape[1]])], [old]
    if kind == "replaced":
        ids[step, row] = (old + draw.randrange(1, samples)) % samples
        return [old], [int(ids[step, row])]
    ids[step] = planned_ids[step + 1]
    return planned_ids[step].tolist(), planned_ids[step + 1].tolist()


STEPS, ROWS = 10_001, 8
big = plan_of(STEPS * ROWS, ROWS, streams=4)
planned_ids = big.row_ids(range(ROWS), 0, STEPS)
planned_ids.flags.writeable = False


def test_ten_thousand_faults_are_all_found_and_placed() -> None:
    """Each fault alone changes the sum of the epoch; all of them are placed at their steps, with the samples' ids.

    The ids are known without any record of what was taken where one sample is lost, read twice or replaced.
    """
    draw = random.Random(0)
    taken, right = planned_ids.copy(), sum_of_range(0, big.samples)
    assert sum_of_ids(taken.ravel()) == right
    injected: dict[int, tuple[str, list[int], list[int]]] = {}
    for step in range(STEPS - 1):
        kind = FAULTS[step % 4]
        injected[step] = kind, *spoil(taken, step, kind, draw, big.samples)
        alone = right.minus(sum_of_ids(planned_ids[step])).plus(sum_of_ids(taken[step]))
        assert not alone.same_samples(right), (step, kind)
    for kept in (False, True):
        ledger = Ledger(big.steps, range(ROWS))
        for step, count, mixed in zip(range(STEPS), *sums_of_batches(taken), strict=True):
            ledger.record_batch(step, count, mixed, ids=taken[step] if kept else None)
        found = {gap.begin: gap for gap in find_gaps(big, ledger, 3)}
        assert found.keys() == injected.keys()
        for step, (kind, lost, extra) in injected.items():
            gap = found[step]
            assert (gap.rank, gap.end) == (3, step + 1)
            if kind != "neighbour" or (kept and step > STEPS // 2):
                assert (sorted(gap.missing), sorted(gap.extra)) == (sorted(lost), sorted(extra)), (step, kind, kept)


def test_a_sample_read_once_more_is_named() -> None:
    """A batch of one sample more than planned."""
    ledger = read(big, range(ROWS), 0, 50)
    ledger.record_batch(49, 1, int(mix_ids(np.array([77]))[0]))
    assert find_gaps(big, ledger, 0) == [LedgerGap(0, 49, 50, extra=(77,))]


def test_intervals_of_long_epochs_are_of_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: a fault is placed within its interval; sums go round at 64 bits without a warning."""
    monkeypatch.setattr("allranks.data.ledger._MOST_INTERVALS", 100)
    ledger = read(big, range(ROWS), 37, 5000)
    assert ledger.interval == 101
    assert find_gaps(big, ledger, 0) == []
    lost = int(planned_ids[4000, 5])
    ledger.record_batch(4000, -1, -int(mix_ids(np.array([lost]))[0]))
    ledger.record_batch(4999, 0, 0)
    assert find_gaps(big, ledger, 0) == [LedgerGap(0, 3939, 4040, missing=(lost,))]


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_mixing_can_be_undone(ids: list[int]) -> None:
    assert unmix_ids(mix_ids(np.array(ids))).tolist() == ids


@given(
    samples=st.integers(1, 400),
    streams=st.sampled_from([1, 2, 4]),
    many=st.integers(1, 4),
    tail=st.sampled_from(["pad", "drop"]),
    cut=st.floats(0, 1),
)
def test_the_sums_of_a_plan_are_those_of_all_ids(samples: int, streams: int, many: int, tail: str, cut: float) -> None:
    """Two parts of an epoch and what is dropped make all ids there are, whatever the layout."""
    one = plan_of(samples, streams * many, streams=streams, tail=tail)
    rows, middle = range(streams * many), int(cut * one.steps)
    parts = planned_sum(one, rows, 0, middle).plus(planned_sum(one, rows, middle, one.steps))
    assert parts.plus(dropped_sum(one, range(streams))) == sum_of_range(0, samples)


plan = plan_of(1003, 24, streams=8)
dropping = plan_of(1003, 24, streams=8, tail="drop")


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("one", [plan, dropping], ids=["pad", "drop"])
def test_the_ranks_prove_an_epoch(size: int, one: plans.EpochPlan) -> None:
    """At any step and at the end, after a resume, too; ranks that hold the same rows count them once."""

    def prove(world: World) -> list[SampleSum]:
        half = one.steps // 2
        rows = plans.rows_of_rank(world.rank, size, 24)
        first = read(one, rows, 0, half)
        before = verify_epoch(world, one, first)
        copies = read(one, plans.rows_of_rank((world.rank + 1) % size, size, 24), half, one.steps)
        second = read(one, rows, half, one.steps, seen=before)
        return [before, verify_epoch(world, one, second, copied_rows=copies)]

    missing = 0 if one is plan else 1003 - one.steps * 24
    for before, end in SimulatedWorld(size).run(prove).values():
        assert before.samples == one.steps // 2 * 24
        assert end == sum_of_range(0, 1003).minus(dropped_sum(one, range(8)))
        assert end.samples == 1003 - missing


def odd(kind: str, world: World) -> None:
    """One rank of four does something wrong between steps 10 and 30."""
    rows, seen = plans.rows_of_rank(world.rank, 4, 24), planned_sum(plan, range(24), 0, 10)
    if kind == "seen":
        seen = seen.minus(sum_of_ids(np.array([5])))
    ledger = read(plan, rows, 10, 29, seen=seen)
    copies = None
    if world.rank == 2 and kind == "lost":
        ids = plan.row_ids(rows, 29, 30)
        ids[0, 3] = -1
        ledger.record_batch(29, *(one[0] for one in sums_of_batches(ids)))
    elif world.rank == 2 and kind == "slipped":
        ledger.record_batch(29, *(one[0] for one in sums_of_batches(plan.row_ids(rows, 30, 31))))
    elif world.rank != 2 or kind != "late":
        go_on(plan, ledger, 29, 30)
    if world.rank == 2 and kind == "rows":
        ledger = read(plan, plans.rows_of_rank(1, 4, 24), 10, 30, seen=seen)
    if world.rank == 3 and kind == "copies":
        copies = read(plan, plans.rows_of_rank(0, 4, 24), 10, 29)
        copies.record_batch(29, 0, 0)
    verify_epoch(world, plan, ledger, copied_rows=copies)


lost_id = int(plan.row_ids(range(12, 18), 29, 30)[0, 3])


@pytest.mark.parametrize(
    ("kind", "says", "ranks"),
    [
        ("lost", rf"719 samples were taken, and 720 planned: rank 2, step 29: lost sample {lost_id}\.", (2,)),
        ("slipped", r"720 samples were taken, and 720 planned: rank 2, step 29: other samples than planned\.", (2,)),
        ("rows", r"rows 12-17 by no rank and rows 6-11 by several counted\.", ()),
        ("seen", r"before step 10, by an earlier job", ()),
        ("copies", r"rank 3, step 29: other samples than planned", (3,)),
    ],
)
def test_what_a_rank_took_wrong_is_the_same_error_on_every_rank(kind: str, says: str, ranks: tuple[int, ...]) -> None:
    outcome = SimulatedWorld(4).run(lambda world: odd(kind, world))
    told = {str(error).partition(": ")[2] for error in outcome.errors.values()}
    assert len(outcome.errors) == 4
    assert len(told) == 1
    for error in outcome.errors.values():
        with pytest.raises(LedgerMismatch, match=says):
            raise error
        assert error.ranks == ranks


def test_ranks_at_different_steps_are_told_so() -> None:
    outcome = SimulatedWorld(4).run(lambda world: odd("late", world))
    for error in outcome.errors.values():
        with pytest.raises(Mismatch, match=r"ranks 0-1, 3: steps 10-29, .*; rank 2: steps 10-28,"):
            raise error
