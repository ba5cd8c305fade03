"""Which line of the user's program called us."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from types import FrameType

from allranks import agent

# contextlib stands between the user's ``with`` and our context managers.
_NOT_THE_USERS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, contextlib.__file__, "<frozen")


def short_path(path: str) -> str:
    """Return a path as a person in the current folder would write it."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path


def of_frame(frame: FrameType) -> str:
    """Return ``train.py:88`` for a frame."""
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def call_site() -> str:
    """Return ``train.py:88``, the innermost line of this thread that is not in allranks; "" if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
    return of_frame(frame) if frame is not None else ""


def whereabouts() -> str:
    """Return ``data.py:41 in next_batch``, the innermost line of the user's code in the main thread now; "" if none."""
    own = agent.load("allranks_agent_failure").is_users
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and not own(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{of_frame(frame)} in {frame.f_code.co_name}" if frame is not None else ""
