"""What a loader stores, on how many ranks ever, and what it refuses to go on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from samples import plan_of, read

import allranks
from allranks import SimulatedWorld, World
from allranks.data import plan
from allranks.data.audit import verify_epoch
from allranks.data.ledger import SampleSum, planned_sum
from allranks.data.reduce import masked_mean
from allranks.data.snapshot import ResumePosition, Snapshot
from allranks.errors import DataError, LedgerMismatch, Mismatch

one = plan_of(1003, 24, streams=8)
layout = one.layout
MANY = layout.depth_of_step


def facts_of(here: plan.IndexLayout) -> dict[str, str | int]:
    """Return the facts of the same data in another layout."""
    return plan.EpochPlan(one.index, here, 0).facts()


def snapshot(world: World, step: int, *, carry: Mapping[int, Any] | None = None) -> Snapshot:
    """Return the state of a rank that has taken steps 0 to ``step``."""
    ledger = read(one, plan.rows_of_rank(world.rank, world.size, 24), 0, step)
    return Snapshot(world, 0, step * MANY, one.facts(), ledger.total, ledger.seen, carry)


def state_of(size: int, step: int) -> dict[str, Any]:
    [state] = {json.dumps(one) for one in SimulatedWorld(size).run(lambda w: snapshot(w, step).gathered()).values()}
    found: dict[str, Any] = json.loads(state)
    return found


def test_the_state_is_small_and_the_same_on_every_rank_and_world() -> None:
    """256 bytes at most, also late in a huge training; a rank's own look at it says that it is a part."""
    assert state_of(1, 20) == state_of(3, 20) == state_of(8, 20)
    [world] = SimulatedWorld(1).run(lambda world: world).values()
    large = {**one.facts(), "samples": 10**12, "streams": 4096, "seed": 2**31, "window": 1024}
    late = Snapshot(world, 10**4, 10**11, large, SampleSum(10**12, 2**64 - 1, 10**9), SampleSum())
    assert len(json.dumps(late.gathered())) <= 256
    assert dict(late) == late.gathered()
    [_, part, _] = SimulatedWorld(3).run(lambda world: dict(snapshot(world, 20))).values()
    assert (part["epoch"], part["depth"], part["part"], part["seen"][0]) == (0, 20 * MANY, [1, 3], 160)


def test_a_loader_that_took_a_batch_more_is_found_in_the_state() -> None:
    """``allranks.verify`` compares where the loaders stand, and not what each has taken."""

    def program(world: World, odd: int) -> Any:
        step = 18 if world.rank == odd else 17
        return allranks.verify({"data": snapshot(world, step), "w": np.zeros(3)}, world=world)

    assert all(one.ok for one in SimulatedWorld(4).run(lambda world: program(world, -1)).values())
    said = rf"leaf 'data/depth' is {18 * MANY} on rank 2 against {17 * MANY} on ranks 0-1, 3"
    with pytest.raises(Mismatch, match=said):
        SimulatedWorld(4).run(lambda world: program(world, 2)).values()


@pytest.mark.parametrize(("before", "after"), [(4, 3), (3, 8), (1, 4), (8, 1)])
def test_a_ledger_goes_on_over_another_number_of_ranks(before: int, after: int) -> None:
    """The sums of the first ranks are in the state; the proof at the end is over both jobs."""
    resume = ResumePosition.from_state(state_of(before, 17), one.facts(), layout, rank=0)
    assert (resume.epoch, resume.step, resume.depth) == (0, 17, 17 * MANY)
    assert resume.seen == planned_sum(one, range(24), 0, 17)

    def go_on(begin: int) -> Any:
        def run(world: World) -> SampleSum:
            rows = plan.rows_of_rank(world.rank, after, 24)
            return verify_epoch(world, one, read(one, rows, begin, one.steps, resume.seen))

        return run

    assert {total.samples for total in SimulatedWorld(after).run(go_on(17)).values()} == {1003}
    lost = SimulatedWorld(after).run(go_on(18)).errors
    assert len(lost) == after
    with pytest.raises(
        LedgerMismatch, match="979 samples were taken, and 1003 planned: before step 18, by an earlier job"
    ):
        raise lost[after - 1]


def test_carries_of_packing_are_put_together_by_stream() -> None:
    """Ranks that read one stream together must have packed it alike."""

    def carry(world: World, odd: bool) -> Any:
        streams = (2 * (world.rank // 2), 2 * (world.rank // 2) + 1)
        held = {stream: [stream, 7 if odd and world.rank == 3 else 0] for stream in streams}
        return snapshot(world, 3, carry=held).gathered()

    four = SimulatedWorld(4)
    [state, *others] = four.run(lambda world: carry(world, odd=False)).values()
    assert others == [state] * 3
    resume = ResumePosition.from_state(state, one.facts(), layout, rank=0)
    assert resume.carry == {stream: [stream, 0] for stream in range(4)}
    errors = four.run(lambda world: carry(world, odd=True)).errors
    assert len(errors) == 4
    with pytest.raises(Mismatch, match="ranks 2 and 3 read stream 2 together, but packed its samples differently"):
        raise errors[0]


def test_loaders_that_stand_at_different_places_make_no_state() -> None:
    errors = SimulatedWorld(3).run(lambda world: snapshot(world, 3 + (world.rank == 1)).gathered()).errors
    assert len(errors) == 3
    with pytest.raises(Mismatch, match=r"ranks 0, 2: epoch 0, depth 9, .*; rank 1: epoch 0, depth 12"):
        raise errors[2]


other = replace(layout, seed=1, window=layout.window + 1)
REFUSED: dict[str, tuple[Any, plan.IndexLayout, str]] = {
    "nothing": (None, layout, "expected the state of a loader, found a NoneType"),
    "something else": ({"row": 64}, layout, "the value is not the state of a loader .KeyError: 'seen'"),
    "broken": ({**state_of(2, 4), "seen": [1, "x", 0]}, layout, "not the state of a loader"),
    "negative": ({**state_of(2, 4), "depth": -3}, layout, "depth -3: expected"),
    "a part": ({**state_of(2, 4), "part": [1, 2]}, layout, "found that of rank 1 of 2.*Save state.gathered"),
    "another order": (
        state_of(2, 4),
        other,
        rf"plan: \w+ in the state, \w+ here; window: {layout.window} in .*; seed: 0 in the state, 1 here\. Build",
    ),
    "another batch": (
        state_of(2, 4),
        replace(layout, global_batch=40),
        "12 samples of every stream .* in the middle of a global batch of 40.* global batch of 8, 16, 24, 32, 48, 96",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_that_does_not_fit_is_refused(name: str) -> None:
    state, here, says = REFUSED[name]
    with pytest.raises(DataError, match=f"rank 3: resuming the data: .*{says}"):
        ResumePosition.from_state(state, facts_of(here), here, rank=3)


def test_another_global_batch_may_go_on_where_the_depth_allows() -> None:
    """Depth counts samples of a stream, so it stands for the same samples."""
    doubled = replace(layout, global_batch=48)
    assert ResumePosition.from_state(state_of(2, 4), facts_of(doubled), doubled, rank=0).step == 2


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_mean_counts_each_row_once(size: int) -> None:
    """Padding, even NaN, does not count, and the mean is the same on any number of ranks."""
    values = [1e16, 1.0, -1e16, 3.0, float("nan"), 0.5, 0.25, float("nan")]
    mask = [value == value for value in values]

    def mean(world: World) -> float:
        rows = plan.rows_of_rank(world.rank, size, 8)
        return masked_mean(values[rows.start : rows.stop], mask[rows.start : rows.stop], world)

    assert set(SimulatedWorld(size).run(mean).values()) == {4.75 / 6}
    none = SimulatedWorld(size).run(lambda world: masked_mean([1.0], [False], world)).errors
    assert len(none) == size
    with pytest.raises(DataError, match="no row of any rank counts"):
        raise none[size - 1]
    last = SimulatedWorld(size).run(lambda w: masked_mean([1.0], [True] * (1 + (w.rank == size - 1)), w)).errors
    assert len(last) == size
    with pytest.raises(DataError, match=rf"the mask of rank {size - 1} is \(2,\), and its values are \(1,\)"):
        raise last[0]
    assert SimulatedWorld(size).run(lambda w: masked_mean([[1, np.inf]], [True], w)).results[0] == np.inf
