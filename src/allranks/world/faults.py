"""Define the faults that a rank of a simulated world can have.

``at`` is the number of one of the rank's store operations, from 0. The fault happens just before this operation.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delay:
    """From operation ``at`` on, every operation of the rank takes ``seconds`` longer."""

    rank: int
    seconds: float
    at: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """The rank stops for ``seconds`` once (SIGSTOP, a long garbage collection, a slow disk)."""

    rank: int
    seconds: float
    at: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """The first ``set`` or ``delete`` at or after operation ``at`` is lost, and the rank does not notice.

    The rank waits for the result of every other operation, so other operations cannot be lost silently.
    """

    rank: int
    at: int = 0


@dataclass(frozen=True, slots=True)
class Crash:
    """The rank ends without a report; the backend learns of it ``noticed_after`` seconds later (None: never)."""

    rank: int
    at: int = 0
    noticed_after: float | None = 1.0


Fault = Delay | Pause | Drop | Crash
