"""Decisions that all ranks take together: in simulation, and on real ranks where one that decides alone slips."""

from __future__ import annotations

import math

import pytest

from allranks.errors import CollectiveOnOneRank, Mismatch
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.simulated import SimulatedWorld
from allranks.world.together import Together


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_what_one_rank_sees_all_ranks_decide(size: int) -> None:
    def program(world: World) -> list[object]:
        together = Together(world)
        last = world.rank == size - 1
        asked = [together.any(last), together.all(last), together.any(False), together.main({"best": world.rank})]
        return [one.result() for one in asked]

    answers = SimulatedWorld(size).run(program).values()
    assert set(map(str, answers)) == {str([True, size == 1, False, {"best": 0}])}


@pytest.mark.parametrize("lengths", [[3, 3, 3], [5, 2, 4], [0, 9, 9], [1, 1, 0]])
def test_a_loop_ends_on_all_ranks_with_the_shortest_data(lengths: list[int]) -> None:
    """No rank begins a step that another has no data for; items come in order, None among them."""

    def program(world: World) -> list[object]:
        items = [None, *range(1, 100)][: lengths[world.rank]]
        return list(Together(world).steps(items))

    expected = [None, *range(1, 100)][: min(lengths)]
    assert SimulatedWorld(3).run(program).values() == (expected,) * 3


def test_questions_in_a_loop_go_between_those_of_its_steps() -> None:
    """Rank 2 sees a NaN at step 1; all skip that step, and rank 0 ends the loop for all at step 3."""

    def program(world: World) -> list[int]:
        together, done = Together(world), []
        for step in together.steps(range(10)):
            if together.any(world.rank == 2 and step == 1, "nan").result():
                continue
            done.append(step)
            if together.main(step == 3, "stop").result():
                break
        return done

    assert set(map(tuple, SimulatedWorld(4).run(program).values())) == {(0, 2, 3)}


def test_a_rank_that_decided_alone_is_named_on_all_ranks() -> None:
    """It asks the next question where the others ask this one: nobody hangs, and no step is mixed with another."""

    def program(world: World) -> None:
        together = Together(world)
        for step in together.steps(range(10)):
            if world.rank == 1 and step == 2:
                continue
            together.any(False, "nan").result()

    outcome = SimulatedWorld(3).run(program)
    assert set(outcome.errors) == {0, 1, 2}
    for error in outcome.errors.values():
        assert isinstance(error, Mismatch)
        assert error.ranks == (1,)
        assert "any 'nan'" in str(error)
        assert "steps 'steps 4'" in str(error)
        assert "test_together.py" in str(error)


def test_one_rank_alone_may_not_ask() -> None:
    world = single_world()
    with Together(world) as together, pytest.raises(CollectiveOnOneRank):
        world.on_main(lambda: together.any(True).result())


@pytest.mark.needs("torch")
@pytest.mark.world(n=2, backend="torch")
def test_a_rank_that_skips_alone_mixes_steps_and_together_it_does_not(world: World) -> None:
    """Without us the gradients of different steps are summed, in silence, until the end; with us none is."""
    import torch
    import torch.distributed as dist

    def losses(step: int) -> float:
        return math.nan if (step, world.rank) == (2, 1) else float(step)

    def reduced(step: int) -> float:
        gradient = torch.tensor([float(step)])
        dist.all_reduce(gradient)
        return float(gradient)

    alone = [reduced(step) for step in range(6) if math.isfinite(losses(step))]
    if world.rank == 1:
        reduced(6)  # or rank 0 would wait for ever
    assert alone == ([0, 2, 2 + 3, 3 + 4, 4 + 5, 5 + 6] if world.rank == 0 else [0, 2, 5, 7, 9])

    with Together(world) as together:
        ours = [
            reduced(step)
            for step in together.steps(range(6 + world.rank))
            if not together.any(not math.isfinite(losses(step))).result()
        ]
    assert ours == [0, 2, 6, 8, 10]


@pytest.mark.needs("jax")
@pytest.mark.world(n=3, backend="jax")
def test_the_thread_of_questions_and_the_world_do_not_disturb_each_other(world: World) -> None:
    """Questions are under way while the training thread meets the others itself."""
    with Together(world) as together:
        for step in range(20):
            late = together.any(step == world.rank, f"at {step}")
            assert world.max(step * world.rank) == step * 2
            assert late.result() == (step < 3)
