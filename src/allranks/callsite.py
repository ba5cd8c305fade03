"""Which line of the user's program called us."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from types import FrameType

# contextlib stands between the user's ``with`` and our context managers.
_NOT_THE_USERS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, contextlib.__file__, "<frozen")
_INSTALLED = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


def short_path(path: str) -> str:
    """Return a path as a person in the current folder would write it."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path


def of_frame(frame: FrameType) -> str:
    """Return ``train.py:88`` for a frame."""
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def call_site() -> str:
    """Return ``train.py:88``: the innermost line of this thread that is the user's; "" if there is none.

    Lines of installed packages (a framework between the user and us) count only where there is no other.
    """
    frame: FrameType | None = sys._getframe(1)
    installed: FrameType | None = None
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_NOT_THE_USERS):
            if not any(folder in path for folder in _INSTALLED):
                return of_frame(frame)
            installed = installed or frame
        frame = frame.f_back
    return of_frame(installed) if installed is not None else ""


def whereabouts() -> str:
    """Return ``data.py:41 in next_batch``, the innermost line of the user's code in the main thread now; "" if none."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{of_frame(frame)} in {frame.f_code.co_name}" if frame is not None else ""


def is_users(filename: str) -> bool:
    """Say whether a file of code is the user's own: not allranks, the standard library or an installed package."""
    return not (
        filename.startswith((*_NOT_THE_USERS, _STANDARD_LIBRARY)) or any(folder in filename for folder in _INSTALLED)
    )
