"""A rank that leaves a step out is found at its next call; ranks that leave out the same, or count alike, are not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import threads
from test_sequence import no_grace as no_grace

from allranks.errors import Mismatch
from allranks.gate.lockstep.calls import make_call
from allranks.gate.lockstep.monitor import LockstepMonitor
from allranks.gate.lockstep.steps import LoopPosition, compare_advances

LOOP = "k in the loop at train.py:8"


def at(**counts: int) -> LoopPosition:
    return LoopPosition(tuple((f"{name} in the loop at train.py:8", count) for name, count in counts.items()))


def train(monitor: LockstepMonitor, positions: Iterable[LoopPosition]) -> int:
    """Make one call at each position, as an edge does; return how many questions that took."""
    sequence = monitor.call_sequence(range(monitor.world.size))
    made = sequence.canonical_call(make_call("all_reduce", "train.py:9"))
    for position in positions:
        sequence.position = lambda position=position: position
        if sequence.predictor.expected is made and sequence.predictor.count != sequence.steps.due:
            sequence.predictor.count_predicted_call()
        else:
            sequence.enter_call(made)
        if sequence.pending_error is not None:
            raise sequence.pending_error
    return sequence.exchange_count


def stand(monitor: LockstepMonitor, positions: Iterable[LoopPosition]) -> Any:
    """Make the calls, and wait in the last one, which others do not join."""
    merge_queries = train(monitor, positions)
    sequence = monitor.call_sequence(range(monitor.world.size))
    for _ in range(500):
        if sequence.pending_error is not None:
            raise sequence.pending_error
        threads.pause()
    return merge_queries


@pytest.mark.parametrize("at_step", [1, 2, 3, 30])
@pytest.mark.parametrize("size", [2, 3])
def test_a_step_that_one_rank_leaves_out_is_found_at_its_next_call(at_step: int, size: int) -> None:
    def program(monitor: LockstepMonitor) -> None:
        odd = monitor.world.rank == size - 1
        steps = [k for k in range(at_step + 2) if not (odd and k == at_step)]
        stand(monitor, [at(k=k) for k in steps[: at_step + 1]])

    for error in threads.run(size, program):
        assert isinstance(error, Mismatch), error
        assert error.ranks == (size - 1,)
        assert f"call {at_step + 1} " in str(error)
        assert f"k = {at_step + 1}" in str(error)
        assert "Did a rank leave out a step" in str(error)


def of_every_rank(positions: list[LoopPosition]) -> Callable[[int], list[LoopPosition]]:
    return lambda _: positions


def samples(rank: int, *, kept: float, batch: int = 4) -> list[LoopPosition]:
    """A call for each full batch of a stream of the rank's own, of which it drops some samples."""
    draw, taken, found = random.Random(rank), 0, []
    for i in itertools.count():
        taken += draw.random() < kept
        if taken == batch:
            taken = 0
            found.append(at(i=i))
        if len(found) == 200:
            return found
    raise AssertionError


HEALTHY: dict[str, Callable[[int], list[LoopPosition]]] = {
    "all leave out the same": of_every_rank([at(k=k) for k in range(200) if k % 37]),
    "strides of their own": lambda rank: [at(k=k) for k in range(rank, 400, 2)],
    "epochs": of_every_rank([at(epoch=epoch, i=i) for epoch in range(20) for i in range(10)]),
    "calls in a loop that does not count": of_every_rank([at(k=k) for k in range(60) for _ in range(5)]),
    "shards of its own, over and over": lambda rank: [at(i=i % (7 + rank)) for i in range(200)],
    "samples of its own, many dropped": lambda rank: samples(rank, kept=0.7),
    "samples of its own, few dropped": lambda rank: samples(rank, kept=0.97),
    "another attempt of one rank": lambda rank: [at(k=k, attempt=int(rank == 1 and k % 7 == 3)) for k in range(60)],
    "more micro-batches on one rank, late": lambda rank: [at(k=k, i=3 if rank and k > 20 else 1) for k in range(60)],
    "another loop": of_every_rank([at(k=k) for k in range(50)] + [at(n=n) for n in range(50)]),
    "no loop": of_every_rank([LoopPosition()] * 100),
    "long": of_every_rank([at(epoch=epoch, i=i) for epoch in range(3) for i in range(1000)]),
}


@pytest.mark.parametrize("program", HEALTHY)
def test_ranks_in_step_hear_nothing_and_seldom_ask(program: str) -> None:
    found = threads.run(2, lambda monitor: train(monitor, HEALTHY[program](monitor.world.rank)))
    assert found == [found[0]] * 2
    assert found[0] <= 16, found


def test_an_epoch_that_is_shorter_on_one_rank_is_found_where_it_ends() -> None:
    def program(monitor: LockstepMonitor) -> None:
        batches = 4 if monitor.world.rank else 5
        stand(monitor, [at(epoch=epoch, i=i) for epoch in range(3) for i in range(batches)][:5])

    for error in threads.run(2, program):
        assert isinstance(error, Mismatch), error
        assert error.ranks == (1,)
        assert "epoch = 1 in the loop at train.py:8, which was 0 at the call before" in str(error)


def test_a_step_left_out_in_the_long_run_is_found_within_sixteen_calls() -> None:
    def program(monitor: LockstepMonitor) -> None:
        steps = [k for k in range(3000) if not (monitor.world.rank and k == 2500)]
        stand(monitor, [at(k=k) for k in steps[:2517]])

    for error in threads.run(2, program):
        assert isinstance(error, Mismatch), error
        assert error.ranks == (1,)


def test_of_ranks_that_ask_those_that_went_farther_left_something_out() -> None:
    assert compare_advances([(0, {LOOP: [1, 7, 0]}), (1, {LOOP: [2, 8, 0]}), (2, {LOOP: [1, 7, 0]})]) == (
        "in the loop at train.py:8: ranks 0, 2: k = 7, 1 on; rank 1: k = 8, 2 on",
        [1],
    )
    assert compare_advances([(0, {LOOP: [1, 7, 1]}), (1, {LOOP: [0, 6, 1]})]) == (
        "in the loop at train.py:8: rank 0: k = 7, 1 on; rank 1: k = 6, 0 on",
        [1],
    )
    assert compare_advances([(0, {LOOP: [3, 7, 1]}), (1, {LOOP: [3, 9, 1]}), (2, {})]) is None


@pytest.mark.parametrize(
    ("ones", "others"),
    [([4, 4, 0], [5, 5, 0]), ([8, 8, 4], [9, 9, 4]), ([0, 0, 0], [1, 1, 0]), ([None, 3, 0], [1, 1, 1])],
    ids=["samples", "samples later", "attempts", "not compared"],
)
def test_loops_that_count_what_each_rank_has_for_itself_are_not_compared(ones: Any, others: Any) -> None:
    """No whole number of steps, or of a loop that has not gone on yet."""
    assert compare_advances([(0, {LOOP: ones}), (1, {LOOP: others})]) is None
