"""Ranks that hold up a job at its start or at its end are reported once; so are jobs whose ranks never met."""

from __future__ import annotations

import pytest

from allranks.launch.events import LocateRanks, RankLeft
from allranks.launch.stall import DEFAULT_HANG_AFTER, StallDetector, seconds_until_report


def left(rank: int, unjoined: str = "") -> RankLeft:
    return RankLeft(rank, 0.0, has_ended=True, unjoined=unjoined)


def test_ranks_that_wait_for_others_to_join_are_reported_once() -> None:
    """From the first that waits; never where all wait, or nobody."""
    job = StallDetector(3, limit=8.0)
    assert job.due is None
    job.joining[0] = 1.0
    job.joining[2] = 4.0
    assert job.due == 9.0
    assert job.report(8.9) == []
    assert job.report(9.5) == [LocateRanks("join", 8.5, (0, 2))]
    assert (job.due, job.report(20.0)) == (None, [])
    all_wait = StallDetector(2, limit=8.0, joining={0: 1.0}, joined={1})
    assert all_wait.due is None


def test_processes_that_do_not_come_to_their_end_are_reported_once() -> None:
    """From the last main thread that has ended; not while one goes on, nor where all have exited."""
    job = StallDetector(2, limit=8.0)
    job.leave(left(0), 1.0)
    assert job.due is None
    job.leave(left(1), 3.0)
    job.exit(0, 3.0)
    assert job.due == 11.0
    assert job.report(11.0) == [LocateRanks("exit", 8.0, (), (0,))]
    assert job.due is None
    ended = StallDetector(2, limit=8.0, ended={0: 1.0, 1: 1.0}, exited={0: 1.0, 1: 1.0})
    assert ended.due is None


def test_without_a_limit_nothing_is_reported() -> None:
    assert StallDetector(2, limit=0.0, joining={0: 1.0}).due is None
    assert StallDetector(2, limit=0.0, ended={0: 1.0, 1: 1.0}).due is None


@pytest.mark.parametrize(
    ("frameworks", "unjoined"),
    [(["torch", "torch"], "torch"), (["torch", ""], ""), (["jax", None], ""), (["jax"], "")],
)
def test_ranks_that_never_met_are_told_from_those_that_did(frameworks: list[str | None], unjoined: str) -> None:
    """All must have ended in order, as programs of several ranks, without having met."""
    job = StallDetector(len(frameworks))
    for rank, framework in enumerate(frameworks):
        if framework is not None:
            job.leave(left(rank, framework), 1.0)
    assert job.unjoined == unjoined


@pytest.mark.parametrize(
    ("asked", "env", "seconds"),
    [(8.0, "5", 8.0), (0.0, "5", 0.0), (None, "5", 5.0), (None, None, DEFAULT_HANG_AFTER), (None, "x", 240.0)],
)
def test_how_long_the_launcher_waits(asked: float | None, env: str | None, seconds: float) -> None:
    assert seconds_until_report(asked, {} if env is None else {"ALLRANKS_HANG_AFTER": env}) == seconds
