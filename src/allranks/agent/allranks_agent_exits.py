"""Report os._exit and os.abort, which end the process at once, without any handler of Python.

Such a rank reports nothing by itself, and other ranks fail before its process has ended. The message sent here, before
the sockets close, tells the launcher which rank was first.
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

import allranks_agent_failure as failures  # type: ignore[import-not-found]

_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
leave, _abort = os._exit, os.abort  # for our own use: they end this process without a report


def finish_as_python() -> None:
    """Run the atexit functions, and flush all open streams, as Python does at its end."""
    atexit._run_exitfuncs()
    # The type, not isinstance: that would load lazy proxies, which warn or import.
    for stream in (thing for thing in gc.get_objects() if issubclass(type(thing), _FILES)):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # closed, or a pipe that nobody reads


class _Listener:
    """The function that gets the report. It does nothing before `attach`."""

    exits: Callable[[SystemExit, FrameType, str], None] = staticmethod(lambda *_: None)


def attach(exits: Callable[[SystemExit, FrameType, str], None]) -> None:
    """Call `exits(error, frame, what)` before the process ends at once.

    `error` has the exit code, `frame` is the caller, `what` describes the end ("" for os._exit).
    """
    _Listener.exits = staticmethod(exits)
    os._exit, os.abort = _leave_at_once, _abort_at_once


def _leave_at_once(status: int) -> NoReturn:
    """The replacement of os._exit: report, then end the process."""
    _stay_if_describing(status)
    try:
        _Listener.exits(SystemExit(status), sys._getframe(1), "")
    finally:
        leave(status)


def _stay_if_describing(status: int) -> None:
    """Raise SystemExit if the caller is an exception's `__str__`: the failure is described, and reported, all the same.

    The process ends when Python shows the exception.
    """
    if failures.is_describing():
        raise SystemExit(status)


def _abort_at_once() -> NoReturn:
    """The replacement of os.abort: report, then abort the process."""
    _stay_if_describing(128 + signal.SIGABRT)
    try:
        _Listener.exits(SystemExit(128 + signal.SIGABRT), sys._getframe(1), "killed by SIGABRT: os.abort() was called")
    finally:
        _abort()
