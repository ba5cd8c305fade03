"""Who was first: from everything that is known about the ends of the ranks to the one end that caused the others.

Theory. When one rank ends, its peers fail too, a moment later: their sockets to it break. So the first failure by time
is the cause, and the rest are consequences. Three things blur the order of time:

1. A rank that raises tells the launcher itself, with the time of the exception. A rank that is killed, or that calls
   ``os._exit``, says nothing (a *silent* end): the launcher learns of it from ``wait``, some milliseconds after the
   kernel has closed its sockets. In between a peer may already have raised "connection reset". So a silent end counts
   as ``SLACK`` seconds earlier than it was seen. SIGABRT is the exception: it is how XLA and C++ runtimes end a process
   when a *peer* is gone, so it gets no slack.
2. A broken connection is never a cause by itself. A failure whose text speaks of one (``ECHOES``) is *weak*: it counts
   only where nothing else explains the end. SIGABRT against a broken connection: SIGABRT.
3. A rank that ends in order (exit code 0) while its peers still need it leaves no failure at all, only weak ones in
   its peers. If the best explanation is weak, and comes from a rank that had not itself left, then the rank that left
   before it is the cause: it left early. An exception that was on its way up when it left the world says why.

What we ended ourselves (after the first failure, a Ctrl-C, a time limit) is never a cause, except a death by a signal
that we did not send and that is not SIGABRT: a rank killed from outside may be seen late.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from allranks.errors import name_ranks
from allranks.failure import Failure, describe_exit, shell_exit_code

SLACK = 0.25
# What the error of a rank says when the cause is another: gloo, NCCL, torch's store, JAX's coordination service, ours.
ECHOES = (
    "connection closed",
    "connection reset",
    "connection refused",
    "connection was",
    "broken pipe",
    "socket closed",
    "gloo",
    "nccl",
    "distnetworkerror",
    "distbackenderror",
    "distributed service",
    "coordination service",
    "coordinationservice",
    "heartbeat",
    "unavailable:",
    "recvvalue failed",
    "rankdied",
    "remoteerror",
)
OURS = frozenset({-signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL})


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a rank's process: ``wait_code`` as ``os.waitstatus_to_exitcode`` gives it, ``when`` in Unix seconds.

    ``asked`` are the signals that we had sent to the rank before.
    """

    rank: int
    wait_code: int
    when: float
    asked: tuple[int, ...] = ()

    @property
    def stopped_by_us(self) -> bool:
        """Whether we had asked for this end."""
        if -self.wait_code in self.asked:
            return True
        from_outside = self.wait_code < 0 and self.wait_code != -signal.SIGABRT
        return bool(self.asked) and not from_outside


@dataclass(frozen=True, slots=True)
class Departure:
    """A rank is done with the others since ``when``; ``failure`` is an exception that was on its way up, perhaps."""

    when: float
    failure: Failure | None = None


def is_echo(failure: Failure) -> bool:
    """Whether a failure reads like the consequence of another rank's end."""
    text = failure.what.lower()
    return any(sign in text for sign in ECHOES)


def first_failure(
    spoken: Iterable[Failure], endings: Mapping[int, Ending], *, left: Mapping[int, Departure], host: str
) -> Failure | None:
    """Return the failure that caused the others, or None where no rank failed.

    ``spoken`` are the failures that ranks reported themselves, ``left`` are those that ended, or left the world, in
    order. ``when`` of a silent end is the time at which it was seen.
    """
    candidates: list[tuple[bool, float, int, Failure]] = []
    told: set[int] = set()
    for failure in spoken:
        if failure.rank not in told:
            told.add(failure.rank)
            candidates.append((is_echo(failure), failure.when, failure.rank, failure))
    for end in endings.values():
        if end.wait_code != 0 and end.rank not in told and not end.stopped_by_us:
            slack = 0.0 if end.wait_code == -signal.SIGABRT else SLACK
            candidates.append((False, end.when - slack, end.rank, silent_failure(end, host)))
    if not candidates:
        return None
    best = min(candidates, key=lambda candidate: candidate[:3])[3]
    weak = is_echo(best) or (best.rank not in told and endings[best.rank].wait_code == -signal.SIGABRT)
    gone = {end.rank: Departure(end.when) for end in endings.values() if end.wait_code == 0} | dict(left)
    leavers = [(left.when, rank) for rank, left in gone.items() if left.when <= best.when and rank != best.rank]
    if weak and leavers and best.rank not in gone:
        when, rank = min(leavers)
        still = {failure.rank for *_, failure in candidates} - {rank}
        early = left_early(rank, when, host=host, while_doing=f"{name_ranks(still)} still needed it")
        return gone[rank].failure or early
    return best


def silent_failure(end: Ending, host: str) -> Failure:
    """Return the failure of a rank that ended without a word."""
    code = shell_exit_code(end.wait_code)
    return Failure(
        end.rank, host, f"ended without a Python error: {describe_exit(end.wait_code)}", end.when, exit_code=code
    )


def left_early(rank: int, when: float, *, host: str, while_doing: str) -> Failure:
    """Return the failure of a rank that ended in order, but too early: ``while_doing`` says what the others did."""
    return Failure(rank, host, f"left early (exit code 0) while {while_doing}", when, exit_code=1)


def with_exit_code(failure: Failure) -> Failure:
    """Return a failure that ends the job with a code other than 0."""
    return failure if failure.exit_code else replace(failure, exit_code=1)
