"""A job that failed is started again, as often as allowed; one that was ended on purpose is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allranks.failure import Failure
from allranks.launch.events import Interrupted, Terminated
from allranks.launch.job import Command, Job
from allranks.launch.restarts import NotStarted, Stopped, next_job, run
from allranks.launch.result import JobResult

FAILURE = Failure(1, "a", "ValueError: bad row", 0.0, where="train.py:3")
FAILED = JobResult(1, (), first_failure=FAILURE, seconds=10.0)
JOB = Job(Command(("python",)), 4, restarts=2, timeout=25.0)


def test_a_failure_is_worth_another_start() -> None:
    """Which knows how many there were, why it is needed, and how much time is left."""
    second = next_job(JOB, FAILED)
    assert second is not None
    assert (second.restart, second.timeout) == (1, 15.0)
    assert second.reason == "rank 1 (host a) failed at train.py:3: ValueError: bad row"
    third = next_job(second, FAILED)
    assert third is not None
    assert next_job(third, FAILED) is None


@pytest.mark.parametrize(
    "result",
    [
        JobResult(0, (), seconds=1.0),
        JobResult(130, (), cause="interrupted by Ctrl-C", seconds=1.0),
        JobResult(143, (), cause="saved step 7 and left (SIGTERM on rank 0)", seconds=1.0),
        JobResult(1, (), first_failure=FAILURE, seconds=25.0),
    ],
    ids=["success", "Ctrl-C", "SIGTERM", "no time left"],
)
def test_another_end_is_not(result: JobResult) -> None:
    assert next_job(JOB, result) is None


def test_the_last_end_counts_and_the_failures_before_are_kept() -> None:
    ends = iter([FAILED, JobResult(0, (), seconds=5.0)])
    said: list[str] = []
    result = run(JOB, lambda _: next(ends), report=said.append)
    assert (result.exit_code, result.seconds, result.restarts) == (0, 15.0, (FAILURE,))
    assert said == ["allranks: restart 1 of 2 after 10.0 s: rank 1 (host a) failed at train.py:3: ValueError: bad row"]


@pytest.mark.parametrize(
    ("event", "code", "cause"),
    [(Terminated(), 143, "stopped by SIGTERM"), (Interrupted(), 130, "interrupted by Ctrl-C")],
)
def test_a_signal_during_the_wait_for_a_restart_ends_the_job(
    event: Terminated | Interrupted, code: int, cause: str
) -> None:
    """It was not started again. The failure before is no reason any more."""
    ends = iter([FAILED])

    def start(job: Job) -> JobResult:
        if job.restart:
            raise Stopped(event, "h1")
        return next(ends)

    said: list[str] = []
    result = run(JOB, start, report=said.append)
    assert (result.exit_code, result.first_failure, result.restarts) == (code, None, ())
    assert result.cause == f"{cause} (host h1) before it was started again"
    assert result.signal == code - 128
    assert len(said) == 1
    with pytest.raises(Stopped, match=r"\(host h1\) during the wait for the other hosts: nothing was started") as found:
        run(replace(JOB, restart=1), start, report=said.append)
    assert found.value.exit_code == code


def test_a_start_that_starts_nothing_leaves_the_end_before_it() -> None:
    def start(job: Job) -> JobResult:
        if job.restart < end:
            return FAILED
        raise NotStarted("host 3 is missing")

    said: list[str] = []
    end = 1
    assert run(JOB, start, report=said.append) is FAILED
    assert said[1:] == ["allranks: not started again: host 3 is missing"]
    end = 0
    with pytest.raises(NotStarted):
        run(JOB, start, report=said.append)
