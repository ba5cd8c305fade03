"""Which ranks the others wait for again and again: from how often each of them was seen to wait."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import pytest

from allranks.launch.events import Print, RankStarted, WaitReport
from allranks.launch.hosts.coordinator import Coordinator
from allranks.launch.limits import Limits
from allranks.launch.placement import Placement
from allranks.launch.slow_ranks import SlowRanks, _median_of_others

TWO_HOSTS = Placement(("a", "b"), (2, 2))
# How long a rank is busy in a step: (rank, step, a number of its own that is as likely to be any from 0 to 1).
Busy = Callable[[int, int, float], float]


def reports(size: int, busy: Busy, *, seconds: float, seed: int = 0) -> list[WaitReport]:
    """What the watches of a job report of such steps: every rank is looked at about once a second."""
    spread = random.Random(seed)
    ends: list[tuple[float, tuple[float, ...]]] = []  # of each step: when it began, how long each rank was busy
    begin, step = 0.0, 0
    while begin < seconds:
        ends.append((begin, tuple(busy(rank, step, spread.random()) for rank in range(size))))
        begin, step = begin + max(ends[-1][1]), step + 1
    found: list[tuple[float, WaitReport]] = []
    for rank in range(size):
        now, step, waits, begun, before = 0.0, 0, 0, 0, -1
        for look in range(1, int(seconds)):
            now += spread.uniform(0.75, 1.25)
            while step + 1 < len(ends) and ends[step + 1][0] <= now:
                step += 1
            is_waiting = now >= ends[step][0] + ends[step][1][rank]
            waits, begun = waits + is_waiting, begun + (is_waiting and step != before)
            before = step if is_waiting else before
            if look % 15 == 0:
                found.append((now, WaitReport(rank, look, waits, begun, 1.0)))
    return [report for _, report in sorted(found, key=lambda one: one[0])]


def slow(size: int, busy: Busy, *, seconds: float = 600.0, seed: int = 0) -> list[int]:
    table = SlowRanks(Placement(("a",), (size,)))
    for report in reports(size, busy, seconds=seconds, seed=seed):
        table.note(report)
    return [one.rank for one in table.slow()]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("factor", [1.3, 2.0, 20.0])
def test_a_rank_that_takes_longer_for_each_step_is_slow(size: int, factor: float) -> None:
    """The others wait for it, and lose what it takes longer."""
    table = SlowRanks(Placement(("a",), (size,)))
    for report in reports(size, lambda rank, _, x: (0.3 + 0.02 * x) * (factor if rank == 1 else 1), seconds=1000):
        table.note(report)
    [one] = table.slow()
    assert one.rank == 1
    assert one.share < 0.1
    assert one.median == pytest.approx(1 - 1 / factor, abs=0.1)
    assert one.seconds == pytest.approx(1000 * (1 - 1 / factor), rel=0.25)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
@pytest.mark.parametrize("size", [2, 8])
@pytest.mark.parametrize(
    "busy",
    [
        lambda rank, step, x: 0.3 + 0.01 * x,  # noqa: ARG005
        lambda rank, step, x: 0.1 + x,  # noqa: ARG005 - another one is late in each step
        lambda rank, step, x: 30 * (0.1 + x),  # noqa: ARG005 - the same, in long steps
        lambda rank, step, x: 0.3 + 0.03 * x + (0.01 if rank == 0 else 0),  # noqa: ARG005 - rank 0 prints
        lambda rank, step, x: 120.0 if (rank, step) == (1, 5) else 0.3 + 0.03 * x,  # one checkpoint
        lambda rank, step, x: 6.0 if rank == 0 and step % 400 == 0 else 0.3 + 0.03 * x,  # and many
    ],
)
def test_a_healthy_job_has_no_slow_rank(busy: Busy, size: int, seed: int) -> None:
    assert slow(size, busy, seed=seed) == []


def test_a_slow_host_is_one_line() -> None:
    """Also where the looks of the ranks do not begin at one time."""
    table = SlowRanks(TWO_HOSTS)
    for report in reports(4, lambda rank, _, x: 0.3 + 0.02 * x + (0.3 if rank >= 2 else 0), seconds=600):
        table.note(report)
    [line] = table.lines()
    assert line.startswith("SLOW: host b (ranks 2-3) is late: in collectives it waits "), line


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_the_median_of_the_others(size: int) -> None:
    """As by leaving out the number itself, also where numbers are equal."""
    numbers = sorted(round(random.Random(size).random(), 1) for _ in range(size))
    for at, one in enumerate(numbers):
        assert _median_of_others(numbers, one) == statistics.median(numbers[:at] + numbers[at + 1 :])


def test_the_work_for_many_ranks_is_small() -> None:
    """Of each round of reports, every rank is looked at once."""
    table, size = SlowRanks(Placement(("a",), (20_000,))), 20_000
    ended = [
        table.note(WaitReport(rank, 15 * turn, 7 * turn, 7 * turn, 1.0)) for turn in range(1, 6) for rank in range(size)
    ]
    assert [at + 1 for at, is_end in enumerate(ended) if is_end] == [size * turn for turn in range(2, 6)]


def test_a_watch_that_counts_from_0_again_begins_a_new_block() -> None:
    """That of init() takes the place of the launcher's."""
    table = SlowRanks(Placement(("a",), (2,)))
    ended = [
        table.note(WaitReport(rank, samples, samples // 2, samples // 2, 1.0))
        for samples in (15, 30, 15, 30)
        for rank in range(2)
    ]
    assert ended == [False, False, False, True, False, False, False, True]


def test_the_launcher_says_it_once_and_at_the_end() -> None:
    """On host 0, of ranks of all hosts; and nothing before it is certain."""
    coordinator = Coordinator(TWO_HOSTS, now=0.0, limits=Limits(), wall=lambda: 0.0)
    coordinator.on(RankStarted(0), 0.0)
    printed = []
    for report in reports(4, lambda rank, _, x: 0.3 + 0.02 * x + (0.3 if rank == 3 else 0), seconds=900):
        printed += coordinator.on(report, 0.0)
    [line] = printed
    assert isinstance(line, Print)
    assert line.notice
    assert line.text.startswith("SLOW: rank 3 (host b) is late")
    assert [one[:22] for one in coordinator.ending().slow] == [line.text[:22]]
