"""Define clocks to pass as arguments. Code that decides about deadlines never reads the system's clock itself."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that only runs forward. Its zero is arbitrary."""

    def now(self) -> float:
        """Return the time in seconds."""


class SystemClock:
    """A clock that reads the machine's monotonic time."""

    def now(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock for tests. It moves only when ``advance_to`` is called."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance_to(self, moment: float) -> None:
        """Move the clock to ``moment`` (seconds). Raises ValueError for a moment in the past."""
        if moment < self._now:
            raise ValueError(
                f"the manual clock cannot be set back: it is at {self._now:.6f} s, and was set to {moment:.6f} s"
            )
        self._now = moment
