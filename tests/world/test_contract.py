"""Every world keeps the one contract."""

from __future__ import annotations

from collections.abc import Callable

import contract
import harness
import pytest
from contract import CONTRACT

from allranks import SimulatedWorld, World
from allranks.world.detect import single_world


def each(function: Callable[..., object]) -> str:
    return function.__name__


@pytest.mark.parametrize("check", CONTRACT, ids=each)
def test_a_world_of_one(check: Callable[[World], None]) -> None:
    check(single_world())


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("check", CONTRACT, ids=each)
def test_a_simulated_world(check: Callable[[World], None], size: int) -> None:
    """Flat for two ranks, and seven in a tree of three levels."""
    SimulatedWorld(size, ranks_per_host=2, fanout=2, timeout=30).run(check).values()


@pytest.mark.parametrize("backend", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("jax", "torch")])
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.soak)])  # sizes are for the simulated ones
def test_real_ranks(backend: str, size: int) -> None:
    """All of the contract, in one job of real processes."""
    job = harness.run(size, [contract.__file__, backend])
    assert job.codes == [0] * size, job
    assert all(f"kept {len(CONTRACT)} of" in rank.out for rank in job.ranks), job
