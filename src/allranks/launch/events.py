"""What can happen to a job (``Event``), and what can be done about it (``Action``): the words of the supervisor.

``when`` is Unix time in seconds, of the host on which it happened; ``wait_code`` is that of
``os.waitstatus_to_exitcode``; ``lines`` are the last that the rank had printed then.
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
    """The rank has met the others."""

    rank: int


@dataclass(frozen=True, slots=True)
class RankFailing:
    """The rank is about to fail, or to end: `RankFailed` or `RankExited` follows, perhaps after those of its peers.

    ``explains``: this failure is the cause of those that the rank has reported, and replaces them.
    """

    failure: Failure
    lines: tuple[str, ...] = ()
    explains: bool = False


@dataclass(frozen=True, slots=True)
class RankFailed:
    """The rank itself has reported a failure. It ``waits`` to be released, or goes on: a thread failed, or it hangs."""

    failure: Failure
    lines: tuple[str, ...] = ()
    waits: bool = True


@dataclass(frozen=True, slots=True)
class RankLeft:
    """The rank is done with the others, in order: its main thread has ended, or it has left the world.

    ``failure`` is an exception that was on its way up meanwhile. It is none of ours unless the job fails later.
    ``where`` is the line of its sys.exit() or os._exit(), if there was one.
    ``exit_code`` and ``why`` are those of ranks that all leave before the program's end, in order (after a SIGTERM);
    ``origin`` is what made them leave ("SIGTERM on rank 2").
    ``has_ended``: it is the main thread that has ended. ``unjoined`` is the framework of a program that has not joined
    another rank, "" where it has, or is no training.
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
    """What the rank reports of its saves, where it is not None.

    ``saves_on_sigterm``: whether it answers SIGTERM by a save from now on. ``step`` is saved, by all ranks.
    """

    rank: int
    saves_on_sigterm: bool | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class RankExited:
    """The rank's process is gone; ``wait_code`` as ``os.waitstatus_to_exitcode`` gives it."""

    rank: int
    wait_code: int
    when: float
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A person pressed Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Terminated:
    """The launcher was asked to end by a signal (SIGTERM, SIGHUP)."""

    signum: int = signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: a deadline may be over. ``dying`` are ranks whose processes are ending, as the kernel says."""

    dying: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ForkServerLost:
    """The parent of the ranks is gone, and the kernel has killed them with it."""


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
    """Send a signal to these ranks: SIGTERM to their own processes, any other to their process groups."""

    ranks: tuple[int, ...]
    signum: int


@dataclass(frozen=True, slots=True)
class Print:
    """Tell the person who watches; a ``notice`` is one that nobody misses who wants a quiet launcher."""

    text: str
    notice: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """The job has ended; kill what may be left, and return this exit code."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class NotifyPeers:
    """Tell these ranks that another has left: they may stand in a collective that it will never join."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MarkFailed:
    """Leave a sign that a rank has failed: ranks that would act on a SIGTERM (save, and leave) then end at once."""


@dataclass(frozen=True, slots=True)
class LocateRanks:
    """Find out where the ranks are, and tell the person who watches.

    ``reason``: the job's ``time`` is over; ``waiting`` ranks wait for others to ``join``; or all main threads have
    ended, and processes do not ``exit``. ``seconds``: for how long. ``ended`` are the ranks whose processes are gone.
    """

    reason: Literal["time", "join", "exit"]
    seconds: float
    waiting: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()


Action = Signal | Print | NotifyPeers | MarkFailed | LocateRanks | Finish
