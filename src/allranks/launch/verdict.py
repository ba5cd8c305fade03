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
   its peers, and perhaps a SIGABRT of its own when they are gone. If only weak failures are known, the rank that left
   before the first of them is the cause: it left early. An exception that was on its way up when it left says why.

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
LEFT_EARLY = "left early"
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
    gone = {end.rank: Departure(end.when) for end in endings.values() if end.wait_code == 0} | dict(left)
    strong: list[tuple[float, int, Failure]] = []
    weak: list[tuple[float, int, Failure]] = []
    told: set[int] = set()
    for failure in spoken:
        if failure.rank not in told:
            told.add(failure.rank)
            (weak if is_echo(failure) else strong).append((failure.when, failure.rank, failure))
    for end in endings.values():
        if end.wait_code == 0 or end.rank in told or end.stopped_by_us:
            continue
        aborted = end.wait_code == -signal.SIGABRT
        when = end.when if aborted else end.when - SLACK
        (weak if aborted and end.rank in gone else strong).append((when, end.rank, silent_failure(end, host)))
    if strong and not _all_aborted(strong, endings, told):
        return min(strong)[2]
    early = _left_early(strong + weak, gone, endings, host=host)
    return early or min(strong or weak, default=(0.0, 0, None))[2]


def _all_aborted(found: list[tuple[float, int, Failure]], endings: Mapping[int, Ending], told: set[int]) -> bool:
    return all(rank not in told and endings[rank].wait_code == -signal.SIGABRT for _, rank, _ in found)


def _left_early(
    found: list[tuple[float, int, Failure]], gone: Mapping[int, Departure], endings: Mapping[int, Ending], *, host: str
) -> Failure | None:
    """Return the failure of the rank that had left before the others failed, if one had."""
    needing = [(when, rank) for when, rank, _ in found if rank not in gone]
    if not needing:
        return None
    leavers = [(departure.when, rank) for rank, departure in gone.items() if departure.when <= min(needing)[0]]
    if not leavers:
        return None
    when, rank = min(leavers)
    others = {rank for _, rank in needing} | endings.keys() - gone.keys()  # those that we stopped needed it as well
    needed = f"{name_ranks(others)} still needed it"
    return gone[rank].failure or left_early(rank, when, host=host, while_doing=needed)


def silent_failure(end: Ending, host: str) -> Failure:
    """Return the failure of a rank that ended without a word."""
    code = shell_exit_code(end.wait_code)
    return Failure(
        end.rank, host, f"ended without a Python error: {describe_exit(end.wait_code)}", end.when, exit_code=code
    )


def left_early(rank: int, when: float, *, host: str, while_doing: str) -> Failure:
    """Return the failure of a rank that ended in order, but too early: ``while_doing`` says what the others did."""
    return Failure(rank, host, f"{LEFT_EARLY} (exit code 0) while {while_doing}", when, exit_code=1)


def with_exit_code(failure: Failure) -> Failure:
    """Return a failure that ends the job with a code other than 0."""
    return failure if failure.exit_code else replace(failure, exit_code=1)
