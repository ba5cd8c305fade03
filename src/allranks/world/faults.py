"""What can go wrong on a rank of a simulated world, on demand.

``at`` counts the rank's own store operations from 0: the fault happens when the rank is about to do that one.
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
    """The rank stands still for ``seconds`` once (SIGSTOP, a long garbage collection, a slow disk)."""

    rank: int
    seconds: float
    at: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """The first ``set`` or ``delete`` at or after ``at`` never reaches the store, and the rank is not told.

    The others, which the store answers, cannot be lost in silence.
    """

    rank: int
    at: int = 0


@dataclass(frozen=True, slots=True)
class Crash:
    """The rank ends without a word; with ``noticed_after`` seconds the backend learns of it, with None never."""

    rank: int
    at: int = 0
    noticed_after: float | None = 1.0


Fault = Delay | Pause | Drop | Crash
