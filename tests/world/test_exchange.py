"""Exchanges of simulated ranks that are delayed, paused, lose writes and crash: one outcome, whatever happens."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allranks import SimulatedWorld, World
from allranks.errors import AllranksError, BarrierTimeout, RankDied
from allranks.world.faults import Crash, Delay, Drop, Fault, Pause
from allranks.world.simulated import Outcome

CALLS = 4
TIMEOUT = 5.0
Seen = list[tuple[Any, ...]]


def faults_of(size: int) -> st.SearchStrategy[Fault]:
    rank, at = st.integers(0, size - 1), st.integers(0, 40)
    seconds = st.sampled_from([0.001, 0.3, 2.0, 7.0, 40.0])
    noticed = st.none() | st.sampled_from([0.01, 1.0, 20.0])
    return st.one_of(
        st.builds(Delay, rank, st.sampled_from([0.001, 0.1, 1.0, 12.0]), at),
        st.builds(Pause, rank, seconds, at),
        st.builds(Drop, rank, at),
        st.builds(Crash, rank, at, noticed),
    )


@st.composite
def worlds(draw: st.DrawFn) -> SimulatedWorld:
    size = draw(st.integers(2, 12))
    return SimulatedWorld(
        size,
        seed=draw(st.integers(0, 2**32)),
        faults=draw(st.lists(faults_of(size), max_size=4)),
        fanout=draw(st.sampled_from([1, 2, 3, 64])),
        timeout=TIMEOUT,
    )


def told(error: AllranksError) -> tuple[Any, ...]:
    """What every rank must see alike: all of an error but the rank that its message begins with."""
    return (type(error).__name__, error.ranks, str(error).partition(": ")[2])


def program(journal: dict[int, Seen]) -> Callable[[World], None]:
    """Four exchanges; the journal gets what each rank saw of each, also where the rank crashes later."""

    def run(world: World) -> None:
        seen = journal.setdefault(world.rank, [])
        for turn in range(CALLS):
            try:
                seen.append(("value", world.all_gather([turn, world.rank])))
            except AllranksError as error:
                seen.append(told(error))

    return run


def watch(world: SimulatedWorld) -> tuple[dict[int, Seen], Outcome[None]]:
    journal: dict[int, Seen] = {}
    return journal, world.run(program(journal))


@given(worlds())
@settings(deadline=None, max_examples=400)
def test_an_exchange_has_one_outcome(world: SimulatedWorld) -> None:
    """Every rank that comes out of an exchange comes out with the same values, or with the same error."""
    journal, end = watch(world)
    assert end.errors == {}
    crashed = {fault.rank for fault in world.faults if isinstance(fault, Crash)}
    for rank in set(range(world.size)) - crashed:
        assert len(journal[rank]) == CALLS
    assert set(end.crashed) <= crashed
    for turn in range(CALLS):
        outcomes = {seen[turn] for seen in map(freeze, journal.values()) if len(seen) > turn}
        assert len(outcomes) <= 1, outcomes
        for kind, *rest in outcomes:
            event(f"{kind} {len(world.faults)}")
            if kind == "value":
                assert rest == [freeze([[turn, rank] for rank in range(world.size)])]


def freeze(value: Any) -> Any:
    return tuple(map(freeze, value)) if isinstance(value, list | tuple) else value


@given(worlds())
@settings(deadline=None, max_examples=100)
def test_the_first_error_names_ranks_that_were_disturbed(world: SimulatedWorld) -> None:
    """Somebody is named, and nobody who came in time is."""
    journal, _ = watch(world)
    failed = [seen for seen in max(journal.values(), key=len) if seen[0] != "value"]
    if failed:
        kind, ranks, message = failed[0]
        event(kind)
        assert kind in ("BarrierTimeout", "RankDied")
        assert ranks
        assert set(ranks) <= {fault.rank for fault in world.faults}, message


def test_a_rank_that_the_last_value_reached_at_the_deadline_is_not_named() -> None:
    """Rank 1 takes a second for each operation: its values come to rank 0 as the others give up."""
    journal, _ = watch(SimulatedWorld(5, seed=0, fanout=2, timeout=TIMEOUT, faults=[Delay(rank=1, seconds=1.0)]))
    kinds = [[seen[0] for seen in journal[rank][:2]] for rank in range(5)]
    assert kinds == [["value", "value"]] * 5
    assert {seen[1] for calls in journal.values() for seen in calls if seen[0] != "value"} == {(1,)}


@given(worlds())
@settings(deadline=None, max_examples=50)
def test_a_run_is_a_function_of_its_seed(world: SimulatedWorld) -> None:
    """To the last operation, and the last digit of the clock."""
    one, two = watch(world), watch(world)
    assert one == two


def test_another_seed_is_another_run() -> None:
    """So that the test above can fail."""
    one, two = (watch(SimulatedWorld(5, seed=seed))[1] for seed in (1, 2))
    assert one.seconds != two.seconds


@pytest.mark.parametrize("fanout", [1, 2, 64])
@pytest.mark.parametrize("rank", range(6))
def test_a_crashed_rank_is_named_as_dead(rank: int, fanout: int) -> None:
    """At whichever operation it crashes, the others learn who it was within seconds, long before the deadline."""
    for at in range(8):
        world = SimulatedWorld(6, faults=[Crash(rank, at, noticed_after=1.0)], fanout=fanout, timeout=300)
        journal, end = watch(world)
        assert end.crashed == (rank,)
        for survivor in set(range(6)) - {rank}:
            kind, ranks, message = next(seen for seen in journal[survivor] if seen[0] != "value")
            assert (kind, ranks) == ("RankDied", (rank,))
            assert f"rank {rank} (host host-0): crashed" in message
        assert end.seconds < 60


@pytest.mark.parametrize("rank", range(6))
def test_a_crash_that_nobody_noticed_is_a_timeout_that_names_the_rank(rank: int) -> None:
    """Also where the rank had come, and then died with the values of others in its hands."""
    for at in range(4):
        world = SimulatedWorld(6, faults=[Crash(rank, at, noticed_after=None)], fanout=2, timeout=TIMEOUT)
        errors = [seen for seen in watch(world)[0][(rank + 1) % 6] if seen[0] != "value"]
        kind, ranks, message = errors[0]
        assert (kind, ranks) == ("BarrierTimeout", (rank,)), message
        assert "within 5 s" in message


def test_the_judge_of_a_failed_exchange_may_fail_itself() -> None:
    """Rank 2 is late, and rank 1, first at the deadline, crashes or stands still at any moment of looking into it.

    Its word is not awaited for ever, and who is named deserves it.
    """
    named = set()
    for at, seed, crashes in itertools.product(range(14), range(4), (True, False)):
        fault = Crash(1, at, noticed_after=1.0) if crashes else Pause(1, 60, at)
        world = SimulatedWorld(3, seed=seed, faults=[Pause(2, seconds=100), fault], timeout=TIMEOUT)
        kind, ranks, message = watch(world)[0][0][0]
        died = ("RankDied", (1,)) if crashes else ("BarrierTimeout", (1,))
        assert (kind, ranks) in (died, ("BarrierTimeout", (1, 2)), ("BarrierTimeout", (2,))), (fault, message)
        named.add((kind, ranks, "which was to say what is wrong" in message))
    assert {("RankDied", (1,), False), ("BarrierTimeout", (1,), True), ("BarrierTimeout", (2,), False)} <= named


def test_the_errors_are_the_public_ones() -> None:
    """What a program catches: BarrierTimeout is a TimeoutError, RankDied says why."""

    def attempt(world: World) -> Exception | None:
        try:
            return world.barrier("epoch", timeout=3)
        except (BarrierTimeout, RankDied) as error:
            return error

    late = SimulatedWorld(3, faults=[Pause(2, seconds=10)]).run(attempt).values()
    assert all(isinstance(error, TimeoutError) and error.ranks == (2,) for error in late)
    died = SimulatedWorld(3, faults=[Crash(1)]).run(attempt).values()
    assert [error.reasons for error in died if isinstance(error, RankDied)] == [{1: "crashed"}] * 2


def test_after_a_pause_the_ranks_go_on_together() -> None:
    """A rank that stood still over two exchanges sees their errors, and the next one is whole again."""
    journal, _ = watch(SimulatedWorld(4, faults=[Pause(3, seconds=8)], timeout=3))
    kinds = {tuple(seen[0] for seen in journal[rank]) for rank in range(4)}
    assert kinds == {("BarrierTimeout", "BarrierTimeout", "value", "value")}
