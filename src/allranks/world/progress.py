"""Record what this rank's training thread is doing, since when, and at which step. The hang watch reads it.

Only the training thread writes, so that a stuck thread cannot look alive. Any thread may read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

PYTHON = "python"  # the phase outside of all calls that stamp
# Phases in which a rank waits for the others. Every rank enters them in one order, so how many it entered is how far
# it is.
WAITS = frozenset(["collective", "exchange"])
# Phases in which the state of the training is written or read.
CHECKPOINTS = frozenset(["save", "restore", "load"])


# A phase of one word (python, exchange, collective, compile, data, save, restore), the call or ticket that it is in (of
# python, what the program says that it does), and time.monotonic() when that began. A plain tuple: it is made twice
# for every tracked call.
Mark = tuple[str, str, float]


class Progress:
    """The progress of this process.

    - ``calls``: how many calls were entered.
    - ``waits``: how many of them were calls in which ranks wait for each other.
    - ``waited``: the seconds spent in those waits.
    - ``last``: the call that was left last.
    - ``step``: the last step that the program reported.
    - ``saved``: the last step that a Checkpointer has saved or restored.
    - ``limit``: the timeout of the exchange that was entered last, in seconds.
    - ``stage``: what the calls in between belong to: ``checkpoint``, ``evaluation``, or "" for the training.
    """

    __slots__ = ("calls", "last", "limit", "mark", "saved", "stage", "step", "waited", "waits")

    def __init__(self) -> None:
        self.step: int | None = None
        self.saved: int | None = None
        self.calls = 0
        self.waits = 0
        self.waited = 0.0
        self.limit = 0.0
        self.stage = ""
        self.mark: Mark = (PYTHON, "", monotonic())
        self.last: Mark = self.mark

    def enter(self, phase: str, what: str) -> Mark:
        """Record that the thread enters a phase; return the value to pass to ``leave``."""
        before = self.mark
        self.calls += 1
        if phase in WAITS:
            self.waits += 1
        self.mark = (phase, what, monotonic())
        return before

    def leave(self, before: Mark) -> None:
        """Record that the thread leaves the phase and is again in the phase ``before``, which counts as begun now."""
        ended, now = self.mark, monotonic()
        if ended[0] in WAITS:
            self.waited += now - ended[2]
        self.last = ended
        self.mark = (before[0], before[1], now)

    def doing(self, what: str, *, step: int | None = None, stage: str = "") -> None:
        """Record what the program does in its own Python code (e.g. ``validation``), its step if known, its stage."""
        self.calls += 1
        self.stage = stage
        self.mark = (PYTHON, what, monotonic())
        if step is not None:
            self.step = step

    @contextmanager
    def inside(self, phase: str, what: str) -> Iterator[None]:
        """Enter a phase, and leave it at the end of the ``with`` block."""
        before, stage = self.enter(phase, what), self.stage
        self.stage = "checkpoint" if phase in CHECKPOINTS else stage
        try:
            yield
        finally:
            self.stage = stage
            self.leave(before)


progress = Progress()
