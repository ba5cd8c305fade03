"""Find the first failure of a job: the end of one rank that caused the ends of the others.

Theory. When one rank ends, its peers fail too, a moment later: their sockets to it break. So the first failure by time
is the cause, and the rest are consequences. But times are imprecise: a rank that is killed, or that C++ aborts, reports
nothing (a *silent* end), and a busy machine shows its end to the launcher long after its peers reported their errors.
So each end is weighed first (`allranks.evidence`: cause, unclear, waiting, consequence). Time decides among equals:

| end | weight | time |
|---|---|---|
| a failure that the rank reported | by its text and that of the exceptions before it | as reported |
| SIGKILL | cause | ``DELAY`` before it was seen |
| a crash (SIGSEGV, ...), an exit code | by the last lines that it printed; cause without any | the same |
| SIGTERM, SIGINT, SIGHUP, not ours | cause: schedulers send them *after* a failure | when it was seen |
| SIGABRT: C++ gave up, perhaps for a *peer* | by the reason that it printed; unclear without one | when it was seen |
| left in order, printed no consequence | cause, if nothing else is and others needed it | reported, or as SIGKILL |

A rank that left early has no failure itself; only its peers fail. It is the cause where there is no other cause, and it
left before the first of these failures. The order in time does not matter where they all are consequences.

What the launcher ended (after the first failure, a Ctrl-C, a time limit) is never a cause, except a death by a signal
that the launcher did not send and that is not SIGABRT: a rank killed from outside may be seen late.
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

DELAY = 0.25
LEFT_EARLY = "left early"
ENDED_BY_SIGNAL = frozenset({-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})


@dataclass(frozen=True, slots=True)
class RankExit:
    """The end of a rank's process: ``wait_code`` as ``os.waitstatus_to_exitcode`` gives it, ``when`` in Unix seconds.

    ``sent_signals`` are those that the launcher had sent to the rank before; ``lines`` are the last that it printed.
    """

    rank: int
    wait_code: int
    when: float
    sent_signals: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def stopped_by_us(self) -> bool:
        """Whether the launcher caused this end."""
        if -self.wait_code in self.sent_signals:
            return True
        from_outside = self.wait_code < 0 and self.wait_code != -signal.SIGABRT
        return bool(self.sent_signals) and not from_outside

    @property
    def weight(self) -> Weight:
        """The weight of a silent end."""
        if self.wait_code == -signal.SIGABRT:
            known = weight_of_text(crash.reason(self.lines))
            return Weight.UNCLEAR if known is None else known
        if self.wait_code in ENDED_BY_SIGNAL or self.wait_code == -signal.SIGKILL:
            return Weight.CAUSE
        return weight_of_lines(self.lines) or Weight.CAUSE

    @property
    def earliest(self) -> float:
        """The earliest time at which it can have happened."""
        seen_at_once = self.wait_code in ENDED_BY_SIGNAL or self.wait_code == -signal.SIGABRT
        return self.when if seen_at_once else self.when - DELAY


@dataclass(frozen=True, slots=True)
class Departure:
    """A rank left the others at ``when``, in order; ``failure`` is an exception that was being raised then, if any.

    ``where`` is the line at which it left, if known; ``lines`` are the last that it printed before.
    """

    when: float
    failure: Failure | None = None
    where: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailureReport:
    """A failure that a rank reported, and the last lines that it had printed."""

    failure: Failure
    lines: tuple[str, ...] = ()

    @property
    def weight(self) -> Weight:
        return weight_of(self.failure, self.lines)


class Candidate(NamedTuple):
    """A failure that may be the first; where ``weight`` is not CAUSE, another rank should have failed before."""

    weight: Weight
    when: float
    rank: int
    failure: Failure


def find_first_failure(
    reports: Iterable[FailureReport],
    exits: Mapping[int, RankExit],
    *,
    departures: Mapping[int, Departure],
    host: str,
    cwd: str = "",
) -> Candidate | None:
    """Return the failure that caused the others, or None where no rank failed.

    ``departures`` are the ranks that ended, or left the world, in order. Paths below ``cwd``, where the job was
    started, are shown relative to it.
    """
    found = list(_candidates(reports, exits, host=host, cwd=cwd))
    best = min(found, default=None)
    if best is None or best.weight is Weight.CAUSE:
        return best
    return _early_exit(found, exits, departures, host=host) or best


def _candidates(
    reports: Iterable[FailureReport], exits: Mapping[int, RankExit], *, host: str, cwd: str
) -> Iterator[Candidate]:
    reported: set[int] = set()
    for report in reports:
        failure = report.failure
        if failure.rank not in reported:
            reported.add(failure.rank)
            end = exits.get(failure.rank)
            if (
                end is not None and end.wait_code != 0 and not end.sent_signals
            ):  # an excepthook may leave with its own code
                failure = replace(failure, exit_code=shell_exit_code(end.wait_code))
            yield Candidate(report.weight, failure.when, failure.rank, failure)
    for end in exits.values():
        if end.wait_code != 0 and end.rank not in reported and not end.stopped_by_us:
            yield Candidate(end.weight, end.earliest, end.rank, silent_failure(end, host, cwd=cwd))


def _early_exit(
    found: Iterable[Candidate], exits: Mapping[int, RankExit], reported: Mapping[int, Departure], *, host: str
) -> Candidate | None:
    """Return the failure of the rank that left before the others failed, None where no rank did."""
    silent = {rank: end for rank, end in exits.items() if end.wait_code == 0 and rank not in reported}
    departures = {rank: Departure(end.earliest, lines=end.lines) for rank, end in silent.items()} | dict(reported)
    lost = {one.rank for one in found if one.weight is Weight.CONSEQUENCE}
    needing = [one for one in found if one.rank not in departures or one.rank in lost]
    if not needing:
        return None
    first = min(needing)
    leavers = [
        (departure.when, rank)
        for rank, departure in departures.items()
        if rank not in lost
        and weight_of_lines(departure.lines) is not Weight.CONSEQUENCE
        and (first.weight is Weight.CONSEQUENCE or departure.when <= min(one.when for one in needing))
    ]
    if not leavers:
        return None
    when, rank = min(leavers)
    others = {one.rank for one in needing} | (
        exits.keys() - departures.keys()
    )  # those that we stopped needed it as well
    needed = f"{name_ranks(others)} still needed it"
    failure = departures[rank].failure or early_exit(
        rank, when, host=host, while_doing=needed, where=departures[rank].where
    )
    return Candidate(Weight.CAUSE, when, rank, failure)


def silent_failure(end: RankExit, host: str, *, cwd: str = "") -> Failure:
    """Return the failure of a rank that ended without reporting one."""
    what = f"ended without a Python error: {describe_exit(end.wait_code)}"
    if end.wait_code < 0 and (why := crash.reason(end.lines)):
        what = f"{what}: {why}"
    where = crash.place(end.lines, cwd=cwd) if end.wait_code < 0 else ""
    return Failure(end.rank, host, what, end.when, where=where, exit_code=shell_exit_code(end.wait_code))


def early_exit(rank: int, when: float, *, host: str, while_doing: str, where: str = "") -> Failure:
    """Return the failure of a rank that ended in order, but too early; ``while_doing`` says what the others did."""
    return Failure(rank, host, f"{LEFT_EARLY} (exit code 0) while {while_doing}", when, where=where, exit_code=1)


def with_exit_code(failure: Failure) -> Failure:
    """Return the failure with exit code 1 where it has exit code 0."""
    return failure if failure.exit_code else replace(failure, exit_code=1)
