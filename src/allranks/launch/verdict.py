"""Who was first: from everything that is known about the ends of the ranks to the one end that caused the others.

Theory. When one rank ends, its peers fail too, a moment later: their sockets to it break. So the first failure by time
is the cause, and the rest are consequences. But time is blurred: a rank that is killed, or that C++ aborts, tells
nothing (a *silent* end), and a busy machine shows its end to the launcher long after its peers have told their errors.
So each end is weighed first (`allranks.evidence`: cause, unclear, waiting, consequence). Time decides among equals:

| end | weight | time |
|---|---|---|
| a failure that the rank told | by its words and those of the exceptions before it | as told |
| SIGKILL | cause | ``SLACK`` before it was seen |
| a crash (SIGSEGV, ...), an exit code | by the last words that it printed; cause without any | the same |
| SIGTERM, SIGINT, SIGHUP, not ours | cause: schedulers send them *after* a failure | when it was seen |
| SIGABRT: C++ gave up, perhaps for a *peer* | by the reason that it printed; unclear without one | when it was seen |
| left in order, printed no consequence | cause, if nothing else is and others needed it | told, or ``SLACK`` before |

A rank that left early leaves no failure at all, only those of its peers. It is the cause where these are none, and it
left before the first of them. "Before" is not asked where they are consequences: somebody must have ended.

What we ended ourselves (after the first failure, a Ctrl-C, a time limit) is never a cause, except a death by a signal
that we did not send and that is not SIGABRT: a rank killed from outside may be seen late.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from allranks.errors import name_ranks
from allranks.evidence import Weight, weight_of, weight_of_lines, weight_of_text
from allranks.failure import Failure, describe_exit, shell_exit_code
from allranks.launch import crash

SLACK = 0.25
LEFT_EARLY = "left early"
ASKED_TO_END = frozenset({-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a rank's process: ``wait_code`` as ``os.waitstatus_to_exitcode`` gives it, ``when`` in Unix seconds.

    ``asked`` are the signals that we had sent to the rank before; ``lines`` the last that it printed.
    """

    rank: int
    wait_code: int
    when: float
    asked: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def stopped_by_us(self) -> bool:
        """Whether we had asked for this end."""
        if -self.wait_code in self.asked:
            return True
        from_outside = self.wait_code < 0 and self.wait_code != -signal.SIGABRT
        return bool(self.asked) and not from_outside

    @property
    def weight(self) -> Weight:
        """How a silent end weighs."""
        if self.wait_code == -signal.SIGABRT:
            known = weight_of_text(crash.reason(self.lines))
            return Weight.UNCLEAR if known is None else known
        if self.wait_code in ASKED_TO_END or self.wait_code == -signal.SIGKILL:
            return Weight.CAUSE
        return weight_of_lines(self.lines) or Weight.CAUSE

    @property
    def happened(self) -> float:
        """When it happened, at the earliest."""
        seen_at_once = self.wait_code in ASKED_TO_END or self.wait_code == -signal.SIGABRT
        return self.when if seen_at_once else self.when - SLACK


@dataclass(frozen=True, slots=True)
class Departure:
    """A rank is done with the others since ``when``; ``failure`` is an exception that was on its way up, perhaps.

    ``where`` is the line at which it left, if that is known; ``lines`` are the last that it printed before.
    """

    when: float
    failure: Failure | None = None
    where: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A failure that a rank told, and the last lines that it had printed."""

    failure: Failure
    lines: tuple[str, ...] = ()

    @property
    def weight(self) -> Weight:
        return weight_of(self.failure, self.lines)


class Verdict(NamedTuple):
    """The first failure as far as it is known; where ``weight`` is not CAUSE, another rank should have come before."""

    weight: Weight
    when: float
    rank: int
    failure: Failure


def judge(
    reports: Iterable[Report],
    endings: Mapping[int, Ending],
    *,
    left: Mapping[int, Departure],
    host: str,
    cwd: str = "",
) -> Verdict | None:
    """Return the failure that caused the others, or None where no rank failed.

    ``left`` are the ranks that ended, or left the world, in order. ``cwd`` is where the job was started: paths below it
    are shown from there.
    """
    found = list(_verdicts(reports, endings, host=host, cwd=cwd))
    best = min(found, default=None)
    if best is None or best.weight is Weight.CAUSE:
        return best
    return _left_early(found, endings, left, host=host) or best


def _verdicts(reports: Iterable[Report], endings: Mapping[int, Ending], *, host: str, cwd: str) -> Iterator[Verdict]:
    told: set[int] = set()
    for report in reports:
        failure = report.failure
        if failure.rank not in told:
            told.add(failure.rank)
            end = endings.get(failure.rank)
            if end is not None and end.wait_code != 0 and not end.asked:  # an excepthook may leave with its own code
                failure = replace(failure, exit_code=shell_exit_code(end.wait_code))
            yield Verdict(report.weight, failure.when, failure.rank, failure)
    for end in endings.values():
        if end.wait_code != 0 and end.rank not in told and not end.stopped_by_us:
            yield Verdict(end.weight, end.happened, end.rank, silent_failure(end, host, cwd=cwd))


def _left_early(
    found: Iterable[Verdict], endings: Mapping[int, Ending], left: Mapping[int, Departure], *, host: str
) -> Verdict | None:
    """Return the failure of the rank that had left before the others failed, if one had."""
    silent = {rank: end for rank, end in endings.items() if end.wait_code == 0 and rank not in left}
    gone = {rank: Departure(end.happened, lines=end.lines) for rank, end in silent.items()} | dict(left)
    lost = {one.rank for one in found if one.weight is Weight.CONSEQUENCE}
    needing = [one for one in found if one.rank not in gone or one.rank in lost]
    if not needing:
        return None
    first = min(needing)
    leavers = [
        (departure.when, rank)
        for rank, departure in gone.items()
        if rank not in lost
        and weight_of_lines(departure.lines) is not Weight.CONSEQUENCE
        and (first.weight is Weight.CONSEQUENCE or departure.when <= min(one.when for one in needing))
    ]
    if not leavers:
        return None
    when, rank = min(leavers)
    others = {one.rank for one in needing} | (endings.keys() - gone.keys())  # those that we stopped needed it as well
    needed = f"{name_ranks(others)} still needed it"
    failure = gone[rank].failure or left_early(rank, when, host=host, while_doing=needed, where=gone[rank].where)
    return Verdict(Weight.CAUSE, when, rank, failure)


def silent_failure(end: Ending, host: str, *, cwd: str = "") -> Failure:
    """Return the failure of a rank that ended without a word to us."""
    what = f"ended without a Python error: {describe_exit(end.wait_code)}"
    if end.wait_code < 0 and (why := crash.reason(end.lines)):
        what = f"{what}: {why}"
    where = crash.place(end.lines, cwd=cwd) if end.wait_code < 0 else ""
    return Failure(end.rank, host, what, end.when, where=where, exit_code=shell_exit_code(end.wait_code))


def left_early(rank: int, when: float, *, host: str, while_doing: str, where: str = "") -> Failure:
    """Return the failure of a rank that ended in order, but too early: ``while_doing`` says what the others did."""
    return Failure(rank, host, f"{LEFT_EARLY} (exit code 0) while {while_doing}", when, where=where, exit_code=1)


def with_exit_code(failure: Failure) -> Failure:
    """Return a failure that ends the job with a code other than 0."""
    return failure if failure.exit_code else replace(failure, exit_code=1)
