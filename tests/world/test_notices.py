"""A notice on any rank, at any moment: all ranks act at the same call, or all know that they cannot."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from allranks import SimulatedWorld, World
from allranks.errors import BarrierTimeout, KeyTimeout
from allranks.world import overdue
from allranks.world.detect import single_world
from allranks.world.faults import Crash, Delay, Fault
from allranks.world.notices import Notice, Notices, decide
from allranks.world.simulated import Outcome

STEPS = 12
Seen = dict[int, list[tuple[int, str, int]]]


def nap(world: World, seconds: float) -> None:
    with contextlib.suppress(KeyTimeout):
        world.store.wait("never", seconds)


def training(seen: Seen, raised: dict[int, tuple[int, str]], *, together: bool, seed: int) -> Callable[[World], None]:
    """A loop that notes (call, kind, rank) of what it is told; ``raised`` is by rank: (at step, kind)."""

    def run(world: World) -> None:
        notices = Notices(world, patience=5.0)
        mine, pace = seen.setdefault(world.rank, []), random.Random(seed + world.rank)
        for step in range(1, STEPS + 1):
            notice = notices.arrived(step)
            if notice is not None:
                mine.append((step, notice.kind, notice.rank))
            if raised.get(world.rank, (0, ""))[0] == step:
                notices.raise_notice(raised[world.rank][1], "a test")
            nap(world, pace.uniform(0, 0.05))
            if together:
                world.barrier("step")
        for extra in range(STEPS + 1, STEPS + 40):  # the last words: a vote may end late
            nap(world, 0.5)
            notice = notices.arrived(extra)
            if notice is not None:
                mine.append((extra, notice.kind, notice.rank))

    return run


def run(size: int, raised: dict[int, tuple[int, str]], **how: Any) -> tuple[Seen, Outcome[None]]:
    seen: Seen = {}
    together, seed = how.get("together", True), how.get("seed", 0)
    faults: tuple[Fault, ...] = how.get("faults", ())
    world = SimulatedWorld(size, seed=seed, faults=faults)
    return seen, world.run(training(seen, raised, together=together, seed=seed))


@pytest.mark.parametrize("together", [True, False])
def test_all_ranks_act_at_the_same_call(together: bool) -> None:
    """Whoever raises it, whenever, also several at once, with a barrier in each step or none, and slow ranks."""
    calls = set()
    for seed in range(150):
        draw = random.Random(seed)
        size = draw.randint(1, 7)
        who = draw.sample(range(size), draw.randint(1, min(size, 3)))
        raised = {rank: (draw.randint(1, STEPS), draw.choice(["save", "leave"])) for rank in who}
        slow = (Delay(draw.randrange(size), draw.choice([0.001, 0.1])),) if draw.random() < 0.5 else ()
        seen, end = run(size, raised, together=together, seed=seed, faults=slow)
        assert end.errors == {}
        assert len({tuple(each) for each in seen.values()}) == 1, (seed, seen)
        told = [kind for _, kind, _ in seen[0]]
        assert 1 <= len(told) <= len(raised)
        assert ("leave" in told) == ("leave" in [kind for _, kind in raised.values()])
        calls.add(seen[0][0][0])
    assert len(calls) > 5


def test_the_same_notice_of_all_ranks_is_one() -> None:
    """SIGTERM to the whole job."""
    seen, _ = run(6, dict.fromkeys(range(6), (4, "leave")))
    assert all(len(each) == 1 for each in seen.values())
    assert seen[0][0][0] == 5


def test_the_target_is_the_first_call_that_no_rank_has_begun() -> None:
    assert decide({0: 7, 1: 9, 2: 8}) == 10


@pytest.mark.parametrize("fault", [Delay(2, 60, 4), Crash(2, 4, noticed_after=None)], ids=str)
def test_a_rank_that_does_not_answer_is_named_on_all(fault: Fault, capfd: pytest.CaptureFixture[str]) -> None:
    """A notice to leave raises once, a notice to save is only said; nobody acts, and a later notice is heard."""

    def loop(kind: str) -> Callable[[World], list[BarrierTimeout]]:
        def run(world: World) -> list[BarrierTimeout]:
            notices, told = Notices(world, patience=5.0), []
            for step in range(1, 200):
                if world.rank == 1 and step == 3:
                    notices.raise_notice(kind, "SIGTERM")  # type: ignore[arg-type]
                nap(world, 0.5)
                try:
                    assert notices.arrived(step) is None
                except BarrierTimeout as error:
                    told.append(error)
            return told

        return run

    for kind, raises in (("leave", 1), ("save", 0)):
        end = SimulatedWorld(4, faults=[fault]).run(loop(kind))
        assert end.errors == {}
        assert [[error.ranks for error in told] for told in end.results.values()] == [[(2,)] * raises] * len(
            end.results
        )
        said = capfd.readouterr().err
        assert said.count(f"were to {kind} at the same call (SIGTERM), but rank 2 (host host-0) gave no sign") == 2


def test_a_world_of_one_acts_at_its_next_call() -> None:
    """Also when the notice comes in another thread; after one to leave there is no other."""
    notices = Notices(single_world())
    notices.raise_notice("save", "a clock")
    told = [notices.arrived(1), notices.arrived(2)]
    thread = threading.Thread(target=notices.raise_notice, args=("leave", "SIGTERM"))
    thread.start()
    thread.join()
    notices.raise_notice("save", "a clock")
    told += [notices.arrived(3), notices.arrived(4)]
    assert told == [Notice("save", "a clock", 0), None, Notice("leave", "SIGTERM", 0), None]


def test_a_thousand_ranks_hear_of_it() -> None:
    """A few operations each, and rank 0 one for each of the others."""

    def run(world: World) -> int:
        notices = Notices(world)
        for step in range(1, 100):
            if world.rank == 777 and step == 2:
                notices.raise_notice("leave", "SIGTERM")
            if notices.arrived(step) is not None:
                return step
            nap(world, 1.0)
        return 0

    end = SimulatedWorld(1_000).run(run)
    assert len(set(end.values())) == 1
    assert end.values()[0] in range(3, 20)
    assert end.busiest < 1_300


def test_ranks_that_are_late_are_named_with_their_lines() -> None:
    """Those at one line together, and what to do."""
    told = overdue.late_ranks_line(
        [0, 1, 2, 3],
        {0: "at eval.py:9 in evaluate", 1: "at eval.py:9 in evaluate", 3: "at train.py:4 in step"},
        why="SIGTERM came",
        call="maybe_save",
        seconds=15.0,
        saved=20,
    )
    assert told == (
        "SIGTERM came 15 s ago, and ranks 0-3 did not come to the next maybe_save: ranks 0-1 at eval.py:9 in evaluate; "
        "rank 2 gave no sign; rank 3 at train.py:4 in step. Nothing is saved since step 20, and in 15 s the job may be "
        "killed. Call maybe_save after every step, and now and then (same step) in a long warm-up or evaluation, or "
        "give more time: allranks run --grace."
    )
