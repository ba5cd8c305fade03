"""SIGTERM ends a rank. By itself it would not: jax.distributed swallows it, and waits for a preemption notice's use.

Who wants to act on SIGTERM instead (save a checkpoint; JAX's preemption sync point, which Orbax uses) calls
``leave_alone()`` before ``allranks.init()``, or has a handler of his own installed by then.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM
_left_alone = False


def leave_alone() -> None:
    """Leave SIGTERM to the program (and to JAX). Call before ``allranks.init()``."""
    global _left_alone
    _left_alone = True


def on_sigterm(action: Callable[[], None]) -> None:
    """Have ``action`` called, in a thread, when SIGTERM comes: wherever the main thread is, in C too.

    Nothing is done where SIGTERM is somebody else's, or outside the main thread, which alone may say what signals do.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if _left_alone or not ours:
        return
    readable, writable = os.pipe()
    os.set_blocking(writable, False)

    def came(_: int, __: FrameType | None) -> None:
        # Python runs this when its main thread next has a moment; the byte in the pipe comes at once.
        os.write(writable, bytes([signal.SIGTERM]))

    def wait() -> None:
        while signal.SIGTERM not in os.read(readable, 1) or signal.getsignal(signal.SIGTERM) is not came:
            continue
        action()

    def in_child() -> None:
        # A forked child (DataLoader worker) must die of its own SIGTERM, and not tell this pipe.
        if signal.getsignal(signal.SIGTERM) is came:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)

    signal.signal(signal.SIGTERM, came)
    theirs = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    if theirs != -1:
        signal.set_wakeup_fd(theirs)
    os.register_at_fork(after_in_child=in_child)
    threading.Thread(target=wait, name="allranks-sigterm", daemon=True).start()
