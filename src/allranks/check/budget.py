"""How much processor time the parts of a check may take: files of strangers can make any analysis long. An effect."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LEAST_S, PER_1000_LINES_S = 5.0, 0.5
_AGAIN_S = 0.5  # where Python ignores exceptions (finalizers, callbacks of weak references), the first is lost


class Exhausted(BaseException):
    """A part of the check took more processor time than it may. No ``except Exception`` on the way holds it."""


def seconds_for(lines: int) -> float:
    """Return the seconds of processor time that one part may take for so many lines: some 10 times the usual."""
    return LEAST_S + PER_1000_LINES_S * lines / 1000


def seconds_spent() -> float:
    """Return the seconds of the processor that this process has taken."""
    return time.process_time()


@contextmanager
def limited_to(seconds: float) -> Iterator[None]:
    """Raise Exhausted in the body after so many seconds of the processor, whatever the load of the host.

    There is no limit outside of the main thread, and where the system has no such timer. Limits are not nested.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGVTALRM"):
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Exhausted(f"it took more than {seconds:,.1f} s of the processor")

    show_ignored = sys.unraisablehook

    def show_others(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, Exhausted):  # ours comes again
            show_ignored(ignored)

    before = signal.signal(signal.SIGVTALRM, stop)
    sys.unraisablehook = show_others
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.unraisablehook = show_ignored
        signal.signal(signal.SIGVTALRM, before)
