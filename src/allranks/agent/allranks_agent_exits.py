"""Report os._exit and os.abort, which end the process at once, past every handler of Python.

A rank that ends so reports nothing by itself, and its peers fail before its process is gone: the message that is sent
here, before the sockets close, is how the launcher knows which rank was first.
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
    """Who gets the report; nobody before `attach`."""

    exits: Callable[[SystemExit, FrameType, str], None] = staticmethod(lambda *_: None)


def attach(exits: Callable[[SystemExit, FrameType, str], None]) -> None:
    """Call `exits(error, frame, what)` before the process ends at once.

    `error` has the exit code, `frame` is the caller, `what` describes the end ("" for os._exit).
    """
    _Listener.exits = staticmethod(exits)
    os._exit, os.abort = _leave_at_once, _abort_at_once


def _leave_at_once(status: int) -> NoReturn:
    """Replace os._exit."""
    try:
        _Listener.exits(SystemExit(status), sys._getframe(1), "")
    finally:
        leave(status)


def _abort_at_once() -> NoReturn:
    """Replace os.abort."""
    try:
        _Listener.exits(SystemExit(128 + signal.SIGABRT), sys._getframe(1), "killed by SIGABRT: os.abort() was called")
    finally:
        _abort()
