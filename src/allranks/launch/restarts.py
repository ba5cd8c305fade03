"""Decide whether a job is restarted after a failure. The program then continues from its last save."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import replace

from allranks.errors import AllranksError
from allranks.launch.events import Interrupted, Terminated
from allranks.launch.job import Job
from allranks.launch.result import JobResult

_NUMBER = re.compile(r"\d+")
_REASON = 1000  # characters of a failure that travel in the environment


class NotStarted(AllranksError):
    """Raised by a start that has started nothing. ``exit_code`` is that of the launcher, if it was the first start."""

    def __init__(self, message: str, *, remedy: str = "", exit_code: int = 2) -> None:
        super().__init__(message, remedy=remedy)
        self.exit_code = exit_code


class Stopped(NotStarted):
    """Raised by a start when a signal to the launcher of ``host`` ends the wait before it."""

    def __init__(self, event: Interrupted | Terminated, host: str) -> None:
        signum = event.signum if isinstance(event, Terminated) else signal.SIGINT
        name = signal.Signals(signum).name
        super().__init__(
            f"{name} (host {host}) during the wait for the other hosts: nothing was started.", exit_code=128 + signum
        )
        self.event, self.host = event, host
        self._cause = "interrupted by Ctrl-C" if signum == signal.SIGINT else f"stopped by {name}"

    def result(self, before: JobResult) -> JobResult:
        """Return the result of a job that was not started again after a start with the result ``before``."""
        cause = f"{self._cause} (host {self.host}) before it was started again"
        return replace(before, exit_code=self.exit_code, first_failure=None, cause=cause)


def next_job(job: Job, result: JobResult) -> Job | None:
    """Return the job to start next after a job has ended, or None if it is not restarted.

    A failure of a rank leads to another start; success, Ctrl-C, SIGTERM and the time limit do not. Nor does the same
    failure again and again (``max_no_progress``). The time limit applies to all starts together.
    """
    failed = result.first_failure
    left = None if job.timeout is None else job.timeout - result.seconds
    if failed is None or job.restart >= job.restarts or (left is not None and left <= 0):
        return None
    reason, saved = failed.headline()[:_REASON], _later(job.saved, result.saved)
    is_alike = saved == job.saved and _without_numbers(reason) == _without_numbers(job.reason)
    alike = job.alike + 1 if is_alike else 1
    if alike >= job.max_no_progress:
        return None
    return replace(job, restart=job.restart + 1, timeout=left, reason=reason, alike=alike, saved=saved)


def _later(before: int | None, now: int | None) -> int | None:
    return now if before is None or (now is not None and now > before) else before


def _without_numbers(headline: str) -> str:
    """Return a failure without its numbers: ranks, ports, addresses and times differ from start to start."""
    return _NUMBER.sub("0", headline)


def run(job: Job, start: Callable[[Job], JobResult], *, report: Callable[[str], None]) -> JobResult:
    """Run a job with ``start``, and again as often as its ``restarts`` allow; return its last result.

    ``report`` is called with a line of text before each restart. Raises NotStarted if the first start does.
    """
    result, following = start(job), job
    while (next_one := next_job(following, result)) is not None:
        failed = result.first_failure
        assert failed is not None
        report(
            f"allranks: restart {next_one.restart} of {job.restarts} after {result.seconds:.1f} s: {next_one.reason}"
        )
        before, following = result, next_one
        try:
            result = start(following)
        except Stopped as error:
            return error.result(before)
        except NotStarted as error:
            report(f"allranks: not started again: {error}")
            return before
        result = replace(result, restarts=(*before.restarts, failed), seconds=before.seconds + result.seconds)
    if result.first_failure is not None and following.restart < following.restarts:
        report(f"allranks: not started again: {_why_not(following)}")
    return result


def _why_not(job: Job) -> str:
    if job.alike + 1 < job.max_no_progress:
        return "the time limit is over"
    since = "no step was saved" if job.saved is None else f"no step after {job.saved} was saved"
    return f"{job.max_no_progress} starts in a row failed alike, and {since} (--max-no-progress)"
