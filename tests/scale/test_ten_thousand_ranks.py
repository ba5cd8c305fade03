"""Ten thousand simulated ranks meet. Operations are counted, never time."""

from __future__ import annotations

import pytest

from allranks import SimulatedWorld, World
from allranks.errors import AllranksError
from allranks.world.base import DEFAULT_FANOUT
from allranks.world.faults import Crash
from allranks.world.simulated import Outcome

MANY = 10_000


def barrier_and_gather(world: World) -> int | None:
    world.barrier()
    gathered = world.gather(world.rank)
    return None if gathered is None else sum(gathered)


def each(outcome: Outcome[int | None]) -> float:
    """Return the mean of a rank's store operations."""
    return sum(outcome.operations.values()) / len(outcome.results)


def test_a_barrier_and_a_gather_of_ten_thousand_ranks() -> None:
    """The work of the store grows as the number of ranks, and no rank does much more than its children ask for."""
    small, large = (SimulatedWorld(size).run(barrier_and_gather) for size in (MANY // 10, MANY))
    assert large.values() == (sum(range(MANY)), *[None] * (MANY - 1))
    assert each(small) <= 8
    assert each(large) == pytest.approx(each(small), rel=0.01)
    assert small.busiest <= 2 * DEFAULT_FANOUT + 10
    assert large.busiest <= 2 * DEFAULT_FANOUT + 10
    assert large.seconds < 1, "of simulated time"


def test_flat_would_be_too_much_for_rank_0() -> None:
    """Why there is a tree: without one, rank 0 waits for all others, one after the other."""
    flat = SimulatedWorld(1000, fanout=1000).run(barrier_and_gather)
    assert flat.busiest >= 2 * 999


def test_one_dead_rank_of_ten_thousand_is_named_to_all() -> None:
    def attempt(world: World) -> str:
        try:
            return str(world.barrier("epoch"))
        except AllranksError as error:
            return str(error)

    end = SimulatedWorld(MANY, faults=[Crash(7_777)]).run(attempt)
    assert end.crashed == (7_777,)
    assert len(end.results) == MANY - 1
    assert all("a rank is dead. rank 7777 (host host-972): crashed." in told for told in end.results.values())
