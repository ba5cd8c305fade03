"""A rank that is slower by 15 % is named within 30 steps; equal ranks are not, whatever the noise."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from allranks.hang.stragglers import WINDOW, BusyTime, stragglers


def steps(size: int, *, slow: float, noise: float, seed: int, count: int) -> Iterator[dict[int, tuple[float, float]]]:
    """Yield what all ranks measure after every step of 0.1 s, of which rank 1 takes ``slow`` times as long.

    All ranks wait for the slowest. Each has noise of its own, and stands still for a second now and then.
    """
    chance = random.Random(seed)
    paces = [BusyTime() for _ in range(size)]
    now, waited, waits = 0.0, [0.0] * size, 0
    for pace in paces:
        pace.record(now, waits, 0.0)
    for _ in range(count):
        busy = [0.1 * (slow if rank == 1 else 1.0) * chance.lognormvariate(0, noise) for rank in range(size)]
        if chance.random() < 0.05:
            busy[chance.randrange(size)] += 1.0
        longest = max(busy)
        now += longest + 0.01
        waits += 1
        for rank, pace in enumerate(paces):
            waited[rank] += longest - busy[rank] + 0.01
            pace.record(now, waits, waited[rank])
        yield {rank: pace.measure() for rank, pace in enumerate(paces)}


@pytest.mark.parametrize("size", [2, 4, 16, 64])
def test_a_slow_rank_is_named_within_30_steps(size: int) -> None:
    """With 3 % of noise; and by how much it is slower."""
    for seed in range(10):
        *_, last = steps(size, slow=1.15, noise=0.03, seed=seed, count=WINDOW)
        (found,) = stragglers(last)
        assert found.rank == 1, seed
        assert 1.10 <= found.ratio <= 1.22
        assert found.seconds == pytest.approx(0.015, rel=0.5)


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
@pytest.mark.parametrize("size", [2, 8])
def test_equal_ranks_are_not_blamed_in_10_000_steps(size: int, noise: float) -> None:
    """However much they differ from step to step."""
    for paces in steps(size, slow=1.0, noise=noise, seed=size, count=10_000):
        assert stragglers(paces) == ()


def test_a_rank_of_which_too_little_is_known_is_not_blamed() -> None:
    *_, last = steps(4, slow=2.0, noise=0.01, seed=0, count=WINDOW - 1)
    assert stragglers(last) == ()
    assert stragglers({0: (0.1, 0.001)}) == ()
