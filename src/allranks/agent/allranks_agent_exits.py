"""See what ends the process at once, past every handler of Python: os._exit and os.abort, in an excepthook, too.

Who ends so says nothing, and its peers fail before the process is gone: what is told here, before the sockets close,
is how the launcher knows who was first.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
leave, _abort = os._exit, os.abort  # for our own use: they end this process without a word


def finish_as_python() -> None:
    """Run the atexit functions, and flush what is open."""
    atexit._run_exitfuncs()
    # The type is asked, not the thing: isinstance would wake lazy proxies, which warn or import.
    for stream in (thing for thing in gc.get_objects() if issubclass(type(thing), _FILES)):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # closed, or a pipe that nobody reads


class _Listener:
    """Whom to tell; nobody before `attach`."""

    exits: Callable[[SystemExit, FrameType, str], None] = staticmethod(lambda *_: None)


def attach(exits: Callable[[SystemExit, FrameType, str], None]) -> None:
    """Have `exits(error, frame, what)` called before the process ends at once.

    `error` bears the exit code, `frame` is where, `what` is "" for os._exit.
    """
    _Listener.exits = staticmethod(exits)
    os._exit, os.abort = _leave_at_once, _abort_at_once


def _leave_at_once(status: int) -> NoReturn:
    """Stand in for os._exit."""
    try:
        _Listener.exits(SystemExit(status), sys._getframe(1), "")
    finally:
        leave(status)


def _abort_at_once() -> NoReturn:
    """Stand in for os.abort."""
    try:
        _Listener.exits(SystemExit(128 + signal.SIGABRT), sys._getframe(1), "killed by SIGABRT: os.abort() was called")
    finally:
        _abort()
