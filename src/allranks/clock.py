"""Time as an argument: a protocol that decides about deadlines never reads the system's clock by itself."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that only runs forward; its zero is arbitrary."""

    def now(self) -> float:
        """Return the time in seconds."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when the test moves it."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance_to(self, moment: float) -> None:
        """Move to ``moment`` (seconds). Raises ValueError for a moment in the past."""
        if moment < self._now:
            raise ValueError(f"a clock does not run backwards: it is {self._now:.6f} s, asked to go to {moment:.6f} s")
        self._now = moment
