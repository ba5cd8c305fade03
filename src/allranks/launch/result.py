"""Describe how a job and its ranks have ended."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.failure import Failure


@dataclass(frozen=True, slots=True)
class RankResult:
    """The end of one rank.

    ``devices`` is how many were requested; ``wait_code`` is as ``os.waitstatus_to_exitcode`` gives it, None for a rank
    that was never started (or whose end was not seen); ``reported`` is the failure that it reported itself;
    ``stopped``: the launcher ended it; ``seconds`` is its wall time; ``tail`` are its last lines of output.
    """

    rank: int
    host: str
    devices: int | None
    wait_code: int | None
    stopped: bool = False
    reported: Failure | None = None
    seconds: float = 0.0
    peak_bytes: int = 0
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobResult:
    """The end of a job: ``first_failure`` where a rank caused it, else ``cause`` where the launcher had to stop it.

    ``restarts`` are the failures after which it was started again, before this end. ``unjoined`` is the framework of
    ranks that all ended in order and never joined each other; "" where they did.
    """

    exit_code: int
    ranks: tuple[RankResult, ...]
    first_failure: Failure | None = None
    cause: str = ""
    seconds: float = 0.0
    restarts: tuple[Failure, ...] = ()
    unjoined: str = ""
