"""Define the faults of a rank in a simulated world.

``at`` counts the rank's store operations from 0: the fault happens when the rank is about to make that one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delay:
    """Every operation of the rank from ``at`` on takes ``seconds`` longer."""

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
    """The first ``set`` or ``delete`` at or after ``at`` never reaches the store, and the rank does not learn that.

    Other operations need an answer of the store, so they cannot be lost silently.
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
