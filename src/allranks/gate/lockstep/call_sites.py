"""Find the lines of the user's program from which a collective is called. Results are cached by frame position."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

from allranks.callsite import is_users, short_path
from allranks.gate.lockstep import branches

# A key for the places of two frames, cheaper than their lines. Their codes must be kept alive with it.
FrameKey = tuple[int, int, int, int]
_MOST_FRAMES = 50


def frame_key(frame: FrameType) -> FrameKey:
    """Return a key for the current positions in a frame and in its caller."""
    caller = frame.f_back or frame
    return id(frame.f_code), frame.f_lasti, id(caller.f_code), caller.f_lasti


def users_frame(frame: FrameType) -> FrameType:
    """Return the innermost frame of the user's code, searched outwards from ``frame``; else ``frame`` itself."""
    found: FrameType | None = frame
    while found is not None and not _is_users(found.f_code.co_filename):
        found = found.f_back
    return found or frame


def describe_call_site(frame: FrameType) -> str:
    """Return the lines of a frame and of its caller, only of the user's code, e.g. ``model.py:5, from train.py:80``."""
    places = [(short_path(one.f_code.co_filename), one.f_lineno) for one in _users_frames(frame)]
    if len(places) == 2 and places[0][0] == places[1][0]:
        return f"{places[0][0]}:{places[0][1]}" + (f", from line {places[1][1]}" if places[0] != places[1] else "")
    return ", from ".join(f"{path}:{line}" for path, line in places)


def call_site_without_folders(frame: FrameType) -> str:
    """Return the call site without folders, so that it is equal on hosts that have the program in different folders."""
    return " ".join(f"{os.path.basename(one.f_code.co_filename)}:{one.f_lineno}" for one in _users_frames(frame))


def user_frames_of_thread(thread: int) -> list[list[Any]]:
    """Return the frames of the user's code on a thread's stack, outermost first, as ``branches.divergence_reason``
    needs them.
    """
    found: list[list[Any]] = []
    frame = sys._current_frames().get(thread)
    while frame is not None:
        code = frame.f_code
        if _is_users(code.co_filename):
            function = 0 if code.co_name == "<module>" else code.co_firstlineno
            path = os.path.basename(code.co_filename)
            found.insert(0, branches.frame_as_json(path, function, frame.f_lineno, _branches_of(code.co_filename)))
        frame = frame.f_back
    return found[-_MOST_FRAMES:]


@functools.cache
def _branches_of(filename: str) -> list[branches.BranchRange]:
    return branches.branches_of_source("".join(linecache.getlines(filename)))


def code_objects(frame: FrameType) -> tuple[CodeType, ...]:
    """Return the code objects that must stay alive as long as the frame's key is in use."""
    return frame.f_code, (frame.f_back or frame).f_code


def _users_frames(frame: FrameType) -> Sequence[FrameType]:
    """Return the frame and its caller, or only those of the user's code.

    A library that wraps the call on one rank must make no difference.
    """
    if not _is_users(frame.f_code.co_filename):
        return []
    caller = frame.f_back
    return [frame] if caller is None or not _is_users(caller.f_code.co_filename) else [frame, caller]


_is_users = functools.cache(is_users)
