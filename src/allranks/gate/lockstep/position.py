"""Where this rank's training thread is in its loops: read from the frames of the user's code that are running."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from threading import get_ident
from types import CodeType
from typing import Any

from allranks.callsite import is_users
from allranks.gate.lockstep.loops import Loop, around
from allranks.gate.lockstep.steps import Position

# What the training thread has done, by name: ``optimizer steps``.
events: Counter[str] = Counter()
# Returns the number of the batch that a value of a loop is, if it is one.
numbered: list[Callable[[Any], int | None]] = []

# A place in code: its counting loops, with the names that they have on every rank.
_Named = Sequence[tuple[str, Loop]]


def read(thread: int) -> Position:
    """Return where a thread is, which must be this one or wait."""
    frame = sys._getframe(1) if thread == get_ident() else sys._current_frames().get(thread)
    found: list[tuple[str, int]] = []
    while frame is not None:
        named = _named(frame.f_code, frame.f_lasti) if _is_users(frame.f_code.co_filename) else ()
        if named:
            variables = frame.f_locals
            counted = [(name, count) for name, loop in named if (count := _count(loop, variables)) is not None]
            found[:0] = counted
        frame = frame.f_back
    return Position(tuple(found), tuple(sorted(events.items())))


def _count(loop: Loop, variables: Any) -> int | None:
    if loop.counter:
        value = variables.get(loop.counter)
        return value if type(value) is int else None
    for target in loop.targets:
        value = variables.get(target)
        for number_of in numbered:
            if (number := number_of(value)) is not None:
                return number
    return None


_is_users = functools.cache(is_users)


@functools.cache
def _named(code: CodeType, at: int) -> _Named:
    line = _line(code, at)
    where = os.path.basename(code.co_filename)
    return tuple(
        (f"{loop.counter or 'batch'} in the loop at {where}:{loop.line}", loop)
        for loop in around(code, line)
        if loop.counter or loop.targets
    )


def _line(code: CodeType, at: int) -> int:
    return next((line for start, end, line in code.co_lines() if start <= at < end and line), code.co_firstlineno)
