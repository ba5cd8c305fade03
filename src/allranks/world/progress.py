"""How far this rank's training thread is: what it is in, since when, and at which step. The hang watch reads it.

Only the thread that trains stamps, so that a thread which is stuck cannot look alive; any thread may read.
"""

from __future__ import annotations

from time import monotonic

PYTHON = "python"  # the phase outside of all calls that stamp


# A phase of one word (python, meeting, collective, compile, data, save, restore), the call or ticket that it is in, and
# time.monotonic() when that began. A plain tuple: it is made twice for every tracked call.
Mark = tuple[str, str, float]


class Progress:
    """One process' progress. ``calls`` counts what was entered, ``step`` is the last one that the program told of."""

    __slots__ = ("calls", "mark", "step")

    def __init__(self) -> None:
        self.step: int | None = None
        self.calls = 0
        self.mark: Mark = (PYTHON, "", monotonic())

    def enter(self, phase: str, what: str) -> Mark:
        """Begin something; return what ``leave`` takes."""
        before = self.mark
        self.calls += 1
        self.mark = (phase, what, monotonic())
        return before

    def leave(self, before: Mark) -> None:
        """End it: this thread is where it was before, and was not stuck there meanwhile."""
        self.mark = (before[0], before[1], monotonic())


progress = Progress()
