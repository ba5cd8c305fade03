"""A save that goes on while the program does."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from allranks.errors import BarrierTimeout


@dataclass(frozen=True, slots=True)
class Committed:
    """A save that is durable and whole. ``bytes`` are those of all ranks' files; ``seconds`` from the call of ``save``
    to the commit; ``blocked`` the seconds of these that ``save`` itself took on this rank; ``copied`` the bytes of host
    memory that this rank's copy takes (kept, and used again by the next save)."""

    step: int
    path: str
    bytes: int
    seconds: float
    blocked: float
    copied: int


class SaveHandle:
    """What ``save`` returns. Waiting is not collective: any rank may, at any time, any number of times.

    ``blocked`` is how many seconds ``save`` took to return.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self.blocked = 0.0
        self._ended = threading.Event()
        self._result: Committed | BaseException | None = None

    def done(self) -> bool:
        """Return whether the save has ended, well or not."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> Committed:
        """Wait for the end: return what was committed, or raise what stopped it, the same error on every rank.

        Raises BarrierTimeout where it goes on longer than ``timeout`` seconds.
        """
        if not self._ended.wait(timeout):
            raise BarrierTimeout(f"the save of step {self.step} goes on after {timeout:g} s.", step=self.step)
        assert self._result is not None
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result

    def end(self, result: Committed | BaseException) -> None:
        """Say how the save ended. For the save itself."""
        self._result = result
        self._ended.set()
