"""Define what can happen to a job (``Event``) and what the supervisor can do about it (``Action``).

Fields of several classes: ``when`` is Unix time in seconds on the rank's host. ``wait_code`` is the code that
``os.waitstatus_to_exitcode`` returns. ``lines`` are the last lines that the rank had printed by then.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from allranks.failure import Failure


@dataclass(frozen=True, slots=True)
class RankStarted:
    """The rank's process has started."""

    rank: int


@dataclass(frozen=True, slots=True)
class Joining:
    """The rank is about to wait for the other ranks (``jax.distributed.initialize``, ``init_process_group``)."""

    rank: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The rank has joined the other ranks."""

    rank: int


@dataclass(frozen=True, slots=True)
class RankFailing:
    """The rank is about to fail or to end.

    `RankFailed` or `RankExited` follows, perhaps after the failures of other ranks. ``explains``: this failure is the
    cause of the failures that the rank has reported, and replaces them.
    """

    failure: Failure
    lines: tuple[str, ...] = ()
    explains: bool = False


@dataclass(frozen=True, slots=True)
class RankFailed:
    """The rank has reported a failure.

    ``waits``: the rank waits until the launcher releases it. Otherwise the rank continues: only a thread failed, or it
    hangs.
    """

    failure: Failure
    lines: tuple[str, ...] = ()
    waits: bool = True


@dataclass(frozen=True, slots=True)
class RankLeft:
    """The rank has left the other ranks normally: its main thread has ended, or it has left the world.

    - ``failure``: an exception that was being raised then. It counts only if the job fails later.
    - ``where``: the line of its sys.exit() or os._exit(), if any.
    - ``exit_code``, ``why``: for ranks that all leave before the program's end, normally (after a SIGTERM).
    - ``origin``: what made them leave ("SIGTERM on rank 2").
    - ``has_ended``: the main thread has ended.
    - ``unjoined``: the framework of a program that has not joined any other rank; "" if it has, or does not train.
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
    """What the rank reports about its saves. A field is None if the report says nothing about it.

    ``saves_on_sigterm``: whether SIGTERM leads to a save from now on. ``step``: the step that all ranks have saved.
    """

    rank: int
    saves_on_sigterm: bool | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class RankExited:
    """The rank's process has ended. ``wait_code`` is as ``os.waitstatus_to_exitcode`` returns it."""

    rank: int
    wait_code: int
    when: float
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The user pressed Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Terminated:
    """The launcher of ``host`` received a signal to end (SIGTERM, SIGHUP, SIGQUIT). "" for a job on one host."""

    signum: int = signal.SIGTERM
    host: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: a deadline may have been reached. ``dying`` are the ranks whose processes are exiting."""

    dying: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ForkServerLost:
    """The fork server has ended, and the kernel has killed the ranks with it."""

    TEXT: ClassVar[str] = "the process that keeps the ranks was killed"


@dataclass(frozen=True, slots=True)
class WaitReport:
    """How often the rank was seen to wait for others, since its start.

    - ``samples``: how often its training thread was observed, every ``period`` seconds.
    - ``waits``: how many samples found it in a collective. ``begun``: how many waits had begun between two samples.
    """

    rank: int
    samples: int
    waits: int
    begun: int
    period: float


@dataclass(frozen=True, slots=True)
class RankSuspended:
    """The rank's process is stopped: by SIGSTOP, or by a debugger."""

    rank: int


@dataclass(frozen=True, slots=True)
class RankResumed:
    """The rank's process is not stopped any more."""

    rank: int


@dataclass(frozen=True, slots=True)
class HangReport:
    """The hang watch of ``rank`` has found a hang, or its end (``is_over``).

    ``culprits`` are the ranks that cause the hang. ``lines`` are the report; none if the rank has printed it itself.
    """

    rank: int
    culprits: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    is_over: bool = False


SupervisorEvent = (
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
EVENTS: tuple[type[SupervisorEvent], ...] = get_args(SupervisorEvent)
HangEvent = RankSuspended | RankResumed | HangReport
Event = SupervisorEvent | WaitReport | HangEvent


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to these ranks: to their processes if programs handle it (SIGTERM), otherwise to their groups."""

    ranks: tuple[int, ...]
    signum: int


@dataclass(frozen=True, slots=True)
class Print:
    """Print a line for the user on host 0, and another one, if it is not "", on the other hosts.

    With ``notice``, --quiet suppresses the line.
    """

    text: str
    notice: bool = False
    elsewhere: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """End the job: kill the processes that are left, and return this exit code."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class NotifyPeers:
    """Notify these ranks that another rank has left: they may wait in a collective that it will never join."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MarkFailed:
    """Record that a rank has failed. Ranks that would save and leave at SIGTERM then end at once instead."""


@dataclass(frozen=True, slots=True)
class ShareSuspended:
    """Let the hang watches of this host know which ranks of the job have a stopped process: these, and no others."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LocateRanks:
    """Find out where the ranks are, and print that.

    - ``reason``: "time": the job's time limit was reached. "join": the ``waiting`` ranks wait for others to join.
      "exit": all main threads have ended, and some processes do not exit.
    - ``seconds``: how long this has lasted; for "time", the time limit.
    - ``ended``: the ranks whose processes have ended.
    - ``culprits``: the ranks that cause a hang, as far as it is known.
    """

    reason: Literal["time", "join", "exit"]
    seconds: float
    waiting: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    culprits: tuple[int, ...] = ()


Action = Signal | Print | NotifyPeers | MarkFailed | ShareSuspended | LocateRanks | Finish
