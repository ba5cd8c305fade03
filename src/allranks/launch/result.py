"""Describe how a job and its ranks have ended."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from allranks.failure import Failure


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a job has ended, as decided for all hosts together. ``first_failure`` and ``cause`` are as in `JobResult`.

    - ``unjoined``: the framework of ranks that all ended normally and never joined each other; "" if they joined.
    - ``stopped``: the ranks that the launcher ended.
    - ``reported``: the first failure that each rank reported itself.
    - ``saved``: the last step that all ranks have saved, as far as they reported it.
    - ``slow``: lines about ranks for which the others waited again and again.
    - ``lost_ranks``: the wait codes of the ranks whose host was lost; None for those that had not ended by then.
    """

    exit_code: int
    first_failure: Failure | None = None
    cause: str = ""
    unjoined: str = ""
    stopped: frozenset[int] = frozenset()
    reported: Mapping[int, Failure] = field(default_factory=dict)
    saved: int | None = None
    slow: tuple[str, ...] = ()
    lost_ranks: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankResult:
    """The end of one rank.

    - ``devices``: how many were requested.
    - ``wait_code``: as ``os.waitstatus_to_exitcode`` returns it. None if the rank never started or its end was not
      seen.
    - ``stopped``: the launcher ended the rank. ``is_lost``: its host was lost, and how the rank ended is unknown.
    - ``reported``: the failure that the rank reported itself.
    - ``seconds``: its wall time, None if unknown, as is then ``peak_bytes``. ``tail``: its last lines of output.
    """

    rank: int
    host: str
    devices: int | None
    wait_code: int | None
    stopped: bool = False
    reported: Failure | None = None
    seconds: float | None = 0.0
    peak_bytes: int = 0
    is_lost: bool = False
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobResult:
    """The end of a job. ``first_failure`` if a rank caused it; otherwise ``cause`` if the launcher had to stop the job.

    ``restarts`` are the failures after which the job was started again, before this end. ``unjoined`` is the framework
    of ranks that all ended normally and never joined each other; "" if they joined. ``saved`` is the last step that all
    ranks have saved, as far as they reported it. ``slow`` are lines about slow ranks.
    """

    exit_code: int
    ranks: tuple[RankResult, ...]
    first_failure: Failure | None = None
    cause: str = ""
    seconds: float = 0.0
    restarts: tuple[Failure, ...] = ()
    unjoined: str = ""
    saved: int | None = None
    slow: tuple[str, ...] = ()

    @property
    def signal(self) -> int:
        """The signal by which a person or a scheduler stopped the job; 0 if it ended in another way."""
        return next((number for text, number in _STOPPED.items() if self.cause.startswith(text)), 0)


# How ``cause`` begins, by `supervise`.
_STOPPED = {
    "interrupted by Ctrl-C": signal.SIGINT,
    **{f"stopped by {one.name}": one for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)},
}
