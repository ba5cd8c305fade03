"""A function that rank 0 runs, on simulated ranks; with real ones it is in test_reproductions.py."""

from __future__ import annotations

import sys
from contextvars import ContextVar

import pytest

from allranks import main_rank
from allranks.errors import AllranksError, BarrierTimeout, NotJsonable, RemoteError
from allranks.world.base import World
from allranks.world.faults import Pause
from allranks.world.simulated import SimulatedWorld

here: ContextVar[World] = ContextVar("here")


@pytest.fixture(autouse=True)
def _each_rank_has_its_world(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package's attribute of this name is the decorator.
    monkeypatch.setattr(sys.modules["allranks.gate.main_rank"], "current", here.get)


def test_the_result_reaches_every_rank_and_only_rank_0_runs() -> None:
    ran = []

    @main_rank
    def latest(folder: str, *, after: int) -> dict[str, int]:
        """The latest step."""
        ran.append(here.get().rank)
        return {folder: after + 1}

    def program(world: World) -> dict[str, int]:
        here.set(world)
        return latest("checkpoints", after=4)

    assert SimulatedWorld(4).run(program).values() == ({"checkpoints": 5},) * 4
    assert ran == [0]
    assert (latest.__name__, latest.__doc__) == ("latest", "The latest step.")


def test_the_exception_reaches_every_rank() -> None:
    @main_rank(timeout=60)
    def read() -> None:
        raise FileNotFoundError("config.json")

    def program(world: World) -> None:
        here.set(world)
        read()

    seen = SimulatedWorld(3).run(program).errors
    assert isinstance(seen[0], FileNotFoundError)
    assert all(isinstance(seen[rank], RemoteError) for rank in (1, 2))
    assert "rank 0 raised FileNotFoundError: config.json" in str(seen[2])


def test_the_timeout_is_how_long_the_others_wait() -> None:
    @main_rank(timeout=30)
    def slow() -> None:
        return None

    def program(world: World) -> None:
        here.set(world)
        slow()

    seen = SimulatedWorld(2, faults=[Pause(rank=0, at=0, seconds=100.0)], timeout=1000).run(program).errors
    assert isinstance(seen[1], BarrierTimeout)
    assert "30 s" in str(seen[1])


def test_a_result_that_cannot_travel_is_an_error_on_every_rank() -> None:
    @main_rank
    def tree() -> set[int]:
        return {1}

    def program(world: World) -> None:
        here.set(world)
        tree()

    seen = SimulatedWorld(2).run(program).errors
    assert isinstance(seen[0], NotJsonable)
    assert "result of" in str(seen[1])


def test_inside_another_main_rank_function_it_is_just_the_function() -> None:
    @main_rank
    def inner() -> int:
        return 3

    @main_rank
    def outer() -> int:
        return inner() + 1

    def program(world: World) -> int:
        here.set(world)
        return outer()

    assert SimulatedWorld(3).run(program).values() == (4, 4, 4)


def test_without_a_world_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(AllranksError, match=r"allranks\.init\(\)"):
        main_rank(lambda: 1)()
