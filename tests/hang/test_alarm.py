"""The protocol of a hang in simulated worlds: one report, the right culprit, whoever is stuck; nothing while all is
well; a flat number of store operations."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from allranks.errors import KeyTimeout
from allranks.hang.alarm import PATIENCE, HangAlarm, HangCase, RankSnapshot
from allranks.hang.diagnose import diagnose
from allranks.hang.heartbeat import Heartbeat
from allranks.launch.hang_limits import OTHER_STAGES, HangLimits
from allranks.world.base import World
from allranks.world.faults import Crash, Fault
from allranks.world.simulated import SimulatedWorld

LIMIT = 60.0
WORDS = {one.name: one.title for one in OTHER_STAGES}
OPTIONS = {one.name: one.option for one in OTHER_STAGES}
WAITS = Heartbeat(0, 0.0, "collective", "train_step", "train.py:88 in main", order=7)


@dataclass
class Rank:
    """A rank whose training thread stands in what ``state(now)`` returns, since when it did not before."""

    world: World
    state: Callable[[float], Heartbeat | None]
    since: float = 0.0
    last: Heartbeat | None = None

    def heartbeat(self) -> Heartbeat:
        now = self.world.clock.now()
        state = self.state(now)
        if state is None or state != self.last:
            self.since, self.last = now, state
        still = now - self.since
        return replace(state or WAITS, rank=self.world.rank, when=now, since=still, still=still, alike=still)

    def snapshot(self, *, threads: bool) -> RankSnapshot:
        del threads
        return RankSnapshot(self.heartbeat(), "stack", {}, {})


def run(
    size: int,
    state: Callable[[int, float], Heartbeat | None],
    *,
    seconds: float,
    every: float = 1.0,
    faults: tuple[Fault, ...] = (),
    seed: int = 0,
    limits: HangLimits = HangLimits(LIMIT),  # noqa: B008 - frozen
) -> tuple[list[HangCase], object]:
    """Let all ranks beat for so long; ``state(rank, now)`` is None while the rank goes through its steps."""
    cases: list[HangCase] = []

    def program(world: World) -> None:
        alarm = HangAlarm(world, Rank(world, lambda now: state(world.rank, now)), limits=limits, report=cases.append)
        pause(world, random.Random(f"{seed} {world.rank}").uniform(0, every))
        while world.clock.now() <= seconds - every:
            alarm.tick()
            pause(world, every)

    return cases, SimulatedWorld(size, seed=seed, faults=faults).run(program)


def pause(world: World, seconds: float) -> None:
    with contextlib.suppress(KeyTimeout):
        world.store.wait(f"pause/{world.rank}", seconds)


def stuck(culprit: int, at: Heartbeat, *, since: float = 10.0) -> Callable[[int, float], Heartbeat | None]:
    """All is well until ``since``; then one rank stands somewhere, and the others wait for it."""
    return lambda rank, now: None if now < since else at if rank == culprit else WAITS


DATA = Heartbeat(0, 0.0, "data", "the next batch", "data.py:41 in next_batch", order=6)


@pytest.mark.parametrize("culprit", [0, 1, 7])
def test_one_rank_judges_and_reports_once(culprit: int) -> None:
    """After the limit, two beats and the time to answer; then never again while nothing moves."""
    cases, outcome = run(8, stuck(culprit, DATA), seconds=400)
    outcome.values()  # type: ignore[attr-defined]
    (case,) = cases
    assert case.diagnosis.culprits == (culprit,)
    assert len(case.snapshots) == 8
    assert max(snapshot.heartbeat.when for snapshot in case.snapshots.values()) <= 10 + LIMIT + 2 * 1.0 + 1.0


def test_a_second_hang_is_reported_too() -> None:
    """After the first one is over."""

    def state(rank: int, now: float) -> Heartbeat | None:
        first, second = 10 <= now < 120, now >= 200
        culprit = 3 if first else 5
        return None if not (first or second) else DATA if rank == culprit else WAITS

    cases, _ = run(8, state, seconds=400)
    assert [case.diagnosis.culprits for case in cases] == [(3,), (5,)]


def test_a_rank_that_polls_is_reported_once() -> None:
    """It seems to move now and then, and calls again; the others have waited since the report."""

    def state(rank: int, now: float) -> Heartbeat | None:
        polls = rank == 1 and now % 100 < 1.5
        return None if now < 10 or polls else DATA if rank == 1 else WAITS

    cases, _ = run(4, state, seconds=600)
    assert [case.diagnosis.culprits for case in cases] == [(1,)]


def test_a_rank_that_ends_without_a_word_is_named_by_the_others() -> None:
    """Nobody has seen it end, and its last beat is old."""
    cases, outcome = run(5, stuck(2, WAITS, since=30), seconds=300, faults=(Crash(2, at=70, noticed_after=None),))
    assert outcome.crashed == (2,)  # type: ignore[attr-defined]
    assert [case.diagnosis.culprits for case in cases] == [(2,)]
    assert cases[0].diagnosis.verdicts[2] == "silent"


@pytest.mark.parametrize("at", range(172, 190))
@pytest.mark.parametrize("judge", range(3))
def test_where_the_judge_ends_another_one_judges(judge: int, at: int) -> None:
    """Whatever it was about to do: there is a report, and not two of the same kind by one rank."""
    crash = Crash(judge, at=at, noticed_after=None)
    cases, _ = run(3, stuck(3, WAITS, since=30), seconds=300, faults=(crash,))
    assert 1 <= len(cases) <= 2


@pytest.mark.parametrize("phase", ["compile", "save", "restore"])
def test_a_rank_at_work_is_reported_late(phase: str) -> None:
    """It uses its cores: the others wait ten times as long before anybody is told."""
    works = Heartbeat(0, 0.0, phase, "step 100", "train.py:90 in main", order=6, cores=1.0)
    assert run(4, stuck(1, works), seconds=10 + PATIENCE * LIMIT - 1)[0] == []
    cases, _ = run(4, stuck(1, works), seconds=10 + (PATIENCE + 1) * LIMIT)
    assert [(case.diagnosis.culprits, case.diagnosis.at_work) for case in cases] == [((1,), True)]


@pytest.mark.parametrize("cores", [0.0, 1.0])
@pytest.mark.parametrize(
    ("stage", "seconds"), [("first_step", 300.0), ("evaluation", 200.0), ("checkpoint", 20.0), ("evaluation", math.inf)]
)
def test_the_limit_of_a_stage_holds_for_the_rank_for_which_the_others_wait(
    stage: str, seconds: float, cores: float
) -> None:
    """It may be longer or shorter than that of a step, and holds for a rank that works, too; the report names it."""
    limits = HangLimits(LIMIT, ((stage, seconds),))
    busy = replace(DATA, phase="save" if stage == "checkpoint" else "python", stage=stage, cores=cores)
    assert run(4, stuck(1, busy), seconds=min(1000.0, 10 + seconds - 1), limits=limits)[0] == []
    cases, _ = run(4, stuck(1, busy), seconds=min(1000.0, 10 + seconds + 4), limits=limits)
    expected = [] if seconds == math.inf else [((1,), f"limit for {WORDS[stage]} {seconds:g} s: {OPTIONS[stage]}")]
    assert [(case.diagnosis.culprits, case.rule) for case in cases] == expected


def test_a_rank_that_evaluates_does_not_wait_longer_for_one_that_does_not() -> None:
    """Rank 1 is stuck in its data in a step, and the others wait for it in an evaluation: the limit of a step holds."""
    waits = replace(WAITS, stage="evaluation")

    def state(rank: int, now: float) -> Heartbeat | None:
        return None if now < 10 else DATA if rank == 1 else waits

    cases, _ = run(4, state, seconds=10 + LIMIT + 4, limits=HangLimits(LIMIT, (("evaluation", 600.0),)))
    assert [(case.diagnosis.culprits, case.rule) for case in cases] == [
        ((1,), "limit for a training step 60 s: --hang-after")
    ]


def test_10_000_healthy_steps_give_no_report() -> None:
    """Among them a compilation and a save of 60 s each on one rank, for which all others wait; a step takes 1 s, of
    which ranks wait for each other in a part."""
    works = {
        phase: Heartbeat(0, 0.0, phase, "", "train.py:90 in main", order=6, cores=1.0) for phase in ("compile", "save")
    }

    def state(rank: int, now: float) -> Heartbeat | None:
        for phase, begin in (("compile", 0.0), ("save", 5000.0)):
            if begin <= now < begin + 60:
                return works[phase] if rank == 1 else WAITS
        step = int(now)
        return replace(WAITS, what=f"step {step}") if (rank + step) % 3 else None

    cases, outcome = run(4, state, seconds=10_120)
    outcome.values()  # type: ignore[attr-defined]
    assert cases == []


@pytest.mark.parametrize("size", [100, pytest.param(10_000, marks=pytest.mark.soak)])
def test_a_beat_is_one_operation_however_many_ranks_there_are(size: int) -> None:
    """While all is well nobody reads beats; the waits are those of the simulated clock."""
    _, outcome = run(size, lambda rank, now: None, seconds=10)  # noqa: ARG005
    operations = outcome.operations  # type: ignore[attr-defined]
    assert 8 * size <= operations["set"] <= 10 * size
    assert operations["list"] == operations["claim"] == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "size", [50, pytest.param(1000, marks=pytest.mark.soak), pytest.param(10_000, marks=pytest.mark.soak)]
)
def test_in_large_worlds_the_planted_culprit_is_reported(size: int, seed: int) -> None:
    """Through the store, with all ranks' answers: a rank that is stuck, or that never answers."""
    culprit = random.Random(f"{seed} {size}").randrange(size)
    every = max(1.0, size / 1000)
    faults = () if seed % 2 else (Crash(culprit, at=20, noticed_after=None),)
    cases, _ = run(size, stuck(culprit, DATA), seconds=30 + LIMIT + 4 * every, every=every, faults=faults, seed=seed)
    assert [case.diagnosis.culprits for case in cases] == [(culprit,)]
    assert diagnose(cases[0].seen, limit=LIMIT) == cases[0].diagnosis
