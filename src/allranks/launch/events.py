"""Define what can happen to a job (``Event``) and what the supervisor can do about it (``Action``).

``when`` is Unix time in seconds on the rank's host; ``wait_code`` is that of ``os.waitstatus_to_exitcode``; ``lines``
are the last lines that the rank had printed by then.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal, get_args

from allranks.failure import Failure


@dataclass(frozen=True, slots=True)
class RankStarted:
    """The rank's process exists."""

    rank: int


@dataclass(frozen=True, slots=True)
class Joining:
    """The rank is about to wait for the others (``jax.distributed.initialize``, ``init_process_group``)."""

    rank: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The rank has joined the others."""

    rank: int


@dataclass(frozen=True, slots=True)
class RankFailing:
    """The rank is about to fail or to end: `RankFailed` or `RankExited` follows, perhaps after those of its peers.

    ``explains``: this failure is the cause of those that the rank has reported, and replaces them.
    """

    failure: Failure
    lines: tuple[str, ...] = ()
    explains: bool = False


@dataclass(frozen=True, slots=True)
class RankFailed:
    """The rank has reported a failure. It ``waits`` to be released, or goes on: only a thread failed, or it hangs."""

    failure: Failure
    lines: tuple[str, ...] = ()
    waits: bool = True


@dataclass(frozen=True, slots=True)
class RankLeft:
    """The rank has left the others in order: its main thread has ended, or it has left the world.

    ``failure`` is an exception that was being raised then; it counts only if the job fails later. ``where`` is the line
    of its sys.exit() or os._exit(), if any. ``exit_code`` and ``why`` are those of ranks that all leave before the
    program's end, in order (after a SIGTERM); ``origin`` is what made them leave ("SIGTERM on rank 2"). ``has_ended``:
    the main thread has ended. ``unjoined`` is the framework of a program that has not joined another rank, "" where it
    has, or is no training.
    """

    rank: int
    when: float
    failure: Failure | None = None
    exit_code: int = 0
    why: str = ""
    origin: str = ""
    where: str = ""
    lines: tuple[str, ...] = ()
    has_ended: bool = False
    unjoined: str = ""


@dataclass(frozen=True, slots=True)
class SaveReport:
    """What the rank reports of its saves; a field is None where it reports nothing.

    ``saves_on_sigterm``: SIGTERM leads to a save from now on. ``step`` is saved, by all ranks.
    """

    rank: int
    saves_on_sigterm: bool | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class RankExited:
    """The rank's process has ended; ``wait_code`` as ``os.waitstatus_to_exitcode`` gives it."""

    rank: int
    wait_code: int
    when: float
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A person pressed Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Terminated:
    """The launcher got a signal to end (SIGTERM, SIGHUP)."""

    signum: int = signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: a deadline may be over. ``dying`` are the ranks whose processes are exiting."""

    dying: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ForkServerLost:
    """The fork server has ended, and the kernel has killed the ranks with it."""


Event = (
    RankStarted
    | Joining
    | Joined
    | RankFailing
    | SaveReport
    | RankFailed
    | RankLeft
    | RankExited
    | Interrupted
    | Terminated
    | Tick
    | ForkServerLost
)
EVENTS: tuple[type[Event], ...] = get_args(Event)


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to these ranks: SIGTERM to their processes, any other signal to their process groups."""

    ranks: tuple[int, ...]
    signum: int


@dataclass(frozen=True, slots=True)
class Print:
    """Print a line for the user; a ``notice`` is left out under --quiet."""

    text: str
    notice: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """End the job: kill what may be left, and return this exit code."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class NotifyPeers:
    """Notify these ranks that another has left: they may wait in a collective that it will never join."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MarkFailed:
    """Mark that a rank has failed: ranks that handle SIGTERM (save, and leave) then end at once instead."""


@dataclass(frozen=True, slots=True)
class LocateRanks:
    """Find out where the ranks are, and print that.

    ``reason``: the job's ``time`` is over; ``waiting`` ranks wait for others to ``join``; or all main threads have
    ended, and processes do not ``exit``. ``seconds``: for how long. ``ended`` are the ranks whose processes have ended.
    """

    reason: Literal["time", "join", "exit"]
    seconds: float
    waiting: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()


Action = Signal | Print | NotifyPeers | MarkFailed | LocateRanks | Finish
