"""Find the first failure of a job: the end of one rank that caused the other ranks to end.

When one rank ends, other ranks fail too, a moment later: their sockets to it break. So the first failure by time is the
cause, and the rest are consequences. But times are imprecise. A rank that is killed, or that C++ aborts, reports
nothing (a *silent* end). And a busy machine shows its end to the launcher long after other ranks reported their errors.
So each end first gets a weight (`allranks.evidence`: cause, unclear, waiting, consequence). Time decides among equal
weights:

| end | weight | time |
|---|---|---|
| a failure that the rank reported | by its text and the text of the exceptions before it | as reported |
| SIGKILL | cause | ``DELAY`` before it was seen |
| a crash (SIGSEGV, ...), an exit code | by the last lines that it printed; cause without any | the same |
| SIGTERM, SIGINT, SIGHUP, not ours | cause: schedulers send them *after* a failure | when it was seen |
| SIGABRT: C++ gave up, perhaps because of *another rank* | by the printed reason; unclear without one | when seen |
| left normally, printed no consequence | cause, if nothing else is and others needed it | reported, or as SIGKILL |

A rank that left early has no failure itself; only other ranks fail. It is the cause if there is no other cause, and if
it left before the first of these failures. The order in time does not matter if they all are consequences.

An end that the launcher caused (after the first failure, a Ctrl-C, a time limit) is never a cause. There is one
exception: a death by a signal that the launcher did not send and that is not SIGABRT. A rank that was killed from
outside may be seen late.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from allranks.errors import name_ranks
from allranks.evidence import CauseWeight, weight_of, weight_of_lines, weight_of_text
from allranks.failure import Failure, describe_exit, shell_exit_code
from allranks.launch import crash

DELAY = 0.25
LEFT_EARLY = "left early"
ENDED_BY_SIGNAL = frozenset({-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})


@dataclass(frozen=True, slots=True)
class RankExit:
    """The end of a rank's process.

    - ``wait_code``: as ``os.waitstatus_to_exitcode`` returns it.
    - ``when``: in Unix seconds.
    - ``sent_signals``: the signals that the launcher had sent to the rank before.
    - ``lines``: the last lines that the rank printed.
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
    def weight(self) -> CauseWeight:
        """The weight of this end, for a rank that reported no failure."""
        if self.wait_code == -signal.SIGABRT:
            known = weight_of_text(crash.reason(self.lines))
            return CauseWeight.UNCLEAR if known is None else known
        if self.wait_code in ENDED_BY_SIGNAL or self.wait_code == -signal.SIGKILL:
            return CauseWeight.CAUSE
        return weight_of_lines(self.lines) or CauseWeight.CAUSE

    @property
    def earliest(self) -> float:
        """The earliest time at which this end can have happened."""
        seen_at_once = self.wait_code in ENDED_BY_SIGNAL or self.wait_code == -signal.SIGABRT
        return self.when if seen_at_once else self.when - DELAY


@dataclass(frozen=True, slots=True)
class Departure:
    """A rank left the other ranks at ``when``, normally.

    - ``failure``: an exception that was being raised then, if any.
    - ``where``: the line at which the rank left, if known.
    - ``lines``: the last lines that the rank printed before.
    """

    when: float
    failure: Failure | None = None
    where: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailureReport:
    """A failure that a rank reported, and the last lines that the rank had printed."""

    failure: Failure
    lines: tuple[str, ...] = ()

    @property
    def weight(self) -> CauseWeight:
        return weight_of(self.failure, self.lines)


class Candidate(NamedTuple):
    """A failure that may be the first. If ``weight`` is not CAUSE, another rank should have failed before."""

    weight: CauseWeight
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
    """Return the failure that caused the other failures, or None if no rank failed.

    ``departures`` are the ranks that ended, or left the world, normally. File paths below ``cwd``, where the job was
    started, are shown relative to it.
    """
    found = list(_failure_candidates(reports, exits, host=host, cwd=cwd))
    best = min(found, default=None)
    if best is None or best.weight is CauseWeight.CAUSE:
        return best
    return _early_exit(found, exits, departures, host=host) or best


def _failure_candidates(
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
    """Return the failure of the rank that left before the other ranks failed, or None if no rank did."""
    silent = {rank: end for rank, end in exits.items() if end.wait_code == 0 and rank not in reported}
    departures = {rank: Departure(end.earliest, lines=end.lines) for rank, end in silent.items()} | dict(reported)
    lost = {one.rank for one in found if one.weight is CauseWeight.CONSEQUENCE}
    needing = [one for one in found if one.rank not in departures or one.rank in lost]
    if not needing:
        return None
    first = min(needing)
    leavers = [
        (departure.when, rank)
        for rank, departure in departures.items()
        if rank not in lost
        and weight_of_lines(departure.lines) is not CauseWeight.CONSEQUENCE
        and (first.weight is CauseWeight.CONSEQUENCE or departure.when <= min(one.when for one in needing))
    ]
    if not leavers:
        return None
    when, rank = min(leavers)
    others = {one.rank for one in needing} | (
        exits.keys() - departures.keys()
    )  # the ranks that the launcher stopped needed it as well
    needed = f"{name_ranks(others)} still needed it"
    failure = departures[rank].failure or early_exit(
        rank, when, host=host, while_doing=needed, where=departures[rank].where
    )
    return Candidate(CauseWeight.CAUSE, when, rank, failure)


def silent_failure(end: RankExit, host: str, *, cwd: str = "") -> Failure:
    """Return a failure that describes the end of a rank that reported none."""
    what = f"ended without a Python error: {describe_exit(end.wait_code)}"
    if end.wait_code < 0 and (why := crash.reason(end.lines)):
        what = f"{what}: {why}"
    where = crash.place(end.lines, cwd=cwd) if end.wait_code < 0 else ""
    return Failure(end.rank, host, what, end.when, where=where, exit_code=shell_exit_code(end.wait_code))


def early_exit(rank: int, when: float, *, host: str, while_doing: str, where: str = "") -> Failure:
    """Return the failure of a rank that ended normally, but too early.

    ``while_doing`` says what the other ranks did.
    """
    return Failure(rank, host, f"{LEFT_EARLY} (exit code 0) while {while_doing}", when, where=where, exit_code=1)


def with_exit_code(failure: Failure) -> Failure:
    """Return the failure, with exit code 1 if its exit code is 0."""
    return failure if failure.exit_code else replace(failure, exit_code=1)
