"""A simulated world names the rank that failed, and not the ranks that waited for it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable

import pytest

import allranks
from allranks.errors import AllranksError, BarrierTimeout, RankDied
from allranks.world import stall
from allranks.world.base import World
from allranks.world.simulated import SimulatedWorld


def fails_with(error: BaseException, rank: int = 1):
    def program(world: World) -> None:
        if world.rank == rank:
            raise error
        world.barrier("x")

    return program


@pytest.mark.parametrize("size", [2, 3, 5])
def test_values_raises_the_error_that_caused_the_others(size: int) -> None:
    """The others learn of it at once, as real ranks do, and not when their barrier times out."""
    outcome = SimulatedWorld(size).run(fails_with(ValueError("boom")))
    with pytest.raises(ValueError, match="boom") as found:
        outcome.values()
    assert found.value.__notes__ == ["(rank 1 of the simulated world)"]
    others = [outcome.errors[rank] for rank in range(size) if rank != 1]
    assert all(isinstance(error, RankDied) and "has failed: ValueError: boom" in str(error) for error in others)
    assert outcome.seconds < 5


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SystemExit(3), "rank 1 of the simulated world: left with exit code 3."),
        (SystemExit(0), "rank 1 of the simulated world: left with exit code 0."),
        (KeyboardInterrupt(), "rank 1 of the simulated world: KeyboardInterrupt."),
        (GeneratorExit("g"), "rank 1 of the simulated world: GeneratorExit: g."),
    ],
)
def test_an_end_that_is_no_exception_is_that_of_its_rank_alone(error: BaseException, says: str) -> None:
    """It ends neither the run nor, in silence, whoever asks for the values."""
    outcome = SimulatedWorld(3).run(fails_with(error))
    assert outcome.errors[1] is error
    with pytest.raises(AllranksError) as found:
        outcome.values()
    assert str(found.value) == says
    assert found.value.__cause__ is error


def test_sys_exit_is_an_end_of_the_rank() -> None:
    outcome = SimulatedWorld(2).run(lambda world: sys.exit(4) if world.rank else world.barrier("x"))
    assert isinstance(outcome.errors[1], SystemExit)


def test_a_rank_that_ends_without_coming_is_named_with_what_became_of_it() -> None:
    outcome = SimulatedWorld(3).run(lambda world: world.barrier("x", timeout=5) if world.rank != 1 else None)
    with pytest.raises(BarrierTimeout, match=r"rank 1 did not come within 5 s. rank 1 \(host host-0\): has ended"):
        outcome.values()


def test_a_rank_that_holds_the_thread_of_all_is_reported_with_its_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A lock that another rank holds over a barrier would never open."""
    lock = threading.Lock()

    def program(world: World) -> None:
        if world.rank == 0:
            with lock:
                world.barrier("held")
                world.barrier("x")
        else:
            world.barrier("held")
            assert not lock.acquire(timeout=2.0)
            world.barrier("x")

    monkeypatch.setattr(stall, "_monitor", None)
    monkeypatch.setattr(stall, "STALL_SECONDS", 0.05)
    SimulatedWorld(2).run(program).values()
    line = program.__code__.co_firstlineno + 7
    assert re.search(rf"rank 1 of the simulated world is at \S*test_simulated.py:{line} for", capfd.readouterr().err)


def test_a_world_is_for_the_thread_of_its_program() -> None:
    def program(world: World) -> str:
        seen: list[BaseException] = []

        def ask() -> None:
            try:
                world.barrier("x")
            except AllranksError as error:
                seen.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return str(seen[0])

    assert "rank 1: a simulated world can be used only in the thread" in SimulatedWorld(2).run(program).values()[1]


def test_a_world_whose_run_is_over_says_so() -> None:
    """It would wait for ever: nobody runs the others."""
    kept: list[World] = []
    SimulatedWorld(2).run(kept.append)
    with pytest.raises(AllranksError, match="rank 1: the run of this simulated world has ended"):
        max(kept, key=lambda world: world.rank).barrier("late")


@pytest.mark.parametrize("call", [allranks.init, allranks.current])
def test_a_simulated_rank_gets_its_world_from_the_simulation(call: Callable[[], World]) -> None:
    """It would be alone in a world of one, in silence."""
    outcome = SimulatedWorld(3).run(lambda _: call().size)
    assert sorted(outcome.errors) == [0, 1, 2]
    with pytest.raises(AllranksError, match=r"rank \d: allranks.init\(\) or current\(\): this rank is simulated"):
        outcome.values()


def test_a_loop_without_end_is_an_error_of_its_rank() -> None:
    def program(world: World) -> None:
        while True:
            world.any(False)

    outcome = SimulatedWorld(2, max_operations=500).run(program)
    with pytest.raises(
        AllranksError, match=r"rank \d: simulated world: more than 500 store operations. Check the program for an"
    ):
        outcome.values()
