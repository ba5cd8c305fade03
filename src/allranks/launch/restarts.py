"""Decide whether a job is restarted after a failure. The program then continues from its last save."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from allranks.launch.job import Job
from allranks.launch.result import JobResult

_REASON = 1000  # characters of a failure that travel in the environment


def next_job(job: Job, result: JobResult) -> Job | None:
    """Return the job to start next after a job has ended, or None if it is not restarted.

    A failure of a rank leads to another start; success, Ctrl-C, SIGTERM and the time limit do not. The time limit
    applies to all starts together.
    """
    failed = result.first_failure
    left = None if job.timeout is None else job.timeout - result.seconds
    if failed is None or job.restart >= job.restarts or (left is not None and left <= 0):
        return None
    return replace(job, restart=job.restart + 1, timeout=left, reason=failed.headline()[:_REASON])


def run(job: Job, start: Callable[[Job], JobResult], *, report: Callable[[str], None]) -> JobResult:
    """Run a job with ``start``, and again as often as its ``restarts`` allow; return its last result.

    ``report`` is called with a line of text before each restart.
    """
    result, following = start(job), job
    while (next_one := next_job(following, result)) is not None:
        failed = result.first_failure
        assert failed is not None
        report(
            f"allranks: restart {next_one.restart} of {job.restarts} after {result.seconds:.1f} s: {next_one.reason}"
        )
        before, following = result, next_one
        result = start(following)
        result = replace(result, restarts=(*before.restarts, failed), seconds=before.seconds + result.seconds)
    return result
