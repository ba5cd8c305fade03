"""Find the line of the user's program that called allranks."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from types import FrameType

from allranks.failure import one_line

# contextlib is between the user's ``with`` and our context managers.
_NOT_THE_USERS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, contextlib.__file__, "<frozen")
_INSTALLED = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


def short_path(path: str) -> str:
    """Return a path for people, as one line: relative to the current folder, if it is below it."""
    here = os.getcwd() + os.sep
    return one_line(path[len(here) :] if path.startswith(here) else path)


def format_frame(frame: FrameType) -> str:
    """Return the file and line of a frame, e.g. ``train.py:88``."""
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def call_site() -> str:
    """Return the innermost line of this thread that is the user's, e.g. ``train.py:88``, or "" if there is none.

    A line of an installed package (a framework between the user and us) is returned only if there is no other line.
    """
    frame: FrameType | None = sys._getframe(1)
    installed: FrameType | None = None
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_NOT_THE_USERS):
            if not any(folder in path for folder in _INSTALLED):
                return format_frame(frame)
            installed = installed or frame
        frame = frame.f_back
    return format_frame(installed) if installed is not None else ""


def whereabouts() -> str:
    """Return the line of the user's code that the main thread is running now (the innermost one).

    The form is ``data.py:41 in next_batch``; "" if there is no such line.
    """
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{format_frame(frame)} in {one_line(frame.f_code.co_name)}" if frame is not None else ""


def is_users(filename: str) -> bool:
    """Return whether a source file is the user's: not of allranks, the standard library or an installed package."""
    return not (
        filename.startswith((*_NOT_THE_USERS, _STANDARD_LIBRARY)) or any(folder in filename for folder in _INSTALLED)
    )
