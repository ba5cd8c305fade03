"""Where this rank's training thread is in its loops: read from the frames of the user's code that are running."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from allranks.callsite import is_users
from allranks.digest import digest, show
from allranks.gate.lockstep.loops import Loop, around
from allranks.gate.lockstep.steps import Label, Position

# Returns the number of the batch that a value of a loop is, if it is one.
numbered: list[Callable[[Any], int | None]] = []

# Returns what names a value on every rank, "" if nothing does.
labelled: list[Callable[[Any], str]] = []
# Collections of more elements are not compared.
_MOST_ELEMENTS = 10_000

# A place in code: its counting loops, with the names that they have on every rank.
_Named = Sequence[tuple[str, Loop]]


def read(thread: int) -> Position:
    """Return where a thread is, which must be this one or wait."""
    found: list[tuple[str, int]] = []
    for frame, named in _frames(thread):
        variables = frame.f_locals
        found[:0] = [(name, count) for name, loop in named if (count := _count(loop, variables)) is not None]
    return Position(tuple(found))


def labels(thread: int, *, thoroughly: bool) -> list[Label]:
    """Return the elements that loops of a thread are at, which must be this one or wait: of sets and dicts, by their
    strings; ``thoroughly`` of all collections, and parameters too."""
    found = []
    for frame, named in _frames(thread):
        for name, loop in named:
            collection = _collection(loop, frame) if loop.over and loop.targets else None
            if not isinstance(collection, Collection if thoroughly else set | frozenset | Mapping):
                continue
            words = _element(collection, frame.f_locals.get(loop.targets[0]), thoroughly)
            if words and len(collection) <= _MOST_ELEMENTS:
                elements = sorted(filter(None, (_label(one, thoroughly) for one in collection)))
                where = name.partition(" ")[2]
                found.append(Label(where, words, show(digest(*elements))))
    return found


def _element(collection: Any, value: Any, thoroughly: bool) -> str:
    """Return what names an element of a collection on every rank: of a dict's value its key."""
    if isinstance(collection, Mapping) and not _label(value, thoroughly):
        value = next((key for key, one in collection.items() if one is value), None)
    return _label(value, thoroughly)


def _label(value: Any, thoroughly: bool) -> str:
    """Return what names an element on every rank; "" if nothing does."""
    if isinstance(value, str | bytes | Enum):
        return repr(value)
    found = (label(value) for label in labelled) if thoroughly else ()
    return next(filter(None, found), "")


def _collection(loop: Loop, frame: FrameType) -> Any:
    if loop.over.startswith("{"):
        with contextlib.suppress(ValueError):
            return ast.literal_eval(loop.over)
        return None
    first, *attributes = loop.over.split(".")
    # What a comprehension goes through is looked up where it stands.
    frames = [frame, frame.f_back or frame] if frame.f_code.co_name.startswith("<") else [frame]
    scopes = [*(one.f_locals for one in frames), frame.f_globals]
    found = next((scope[first] for scope in scopes if first in scope), None)
    for attribute in attributes:
        found = getattr(found, "__dict__", {}).get(attribute)
    return found


def _frames(thread: int) -> Iterator[tuple[FrameType, _Named]]:
    """Yield the frames of the user's code in which a thread is in loops, the innermost first, with these loops."""
    frame = sys._getframe(2) if thread == get_ident() else sys._current_frames().get(thread)
    while frame is not None:
        code = frame.f_code
        known = _known.get((id(code), frame.f_lasti))
        if known is None:
            known = _known[id(code), frame.f_lasti] = code, _named(code, frame.f_lasti)
        if known[1]:
            yield frame, known[1]
        frame = frame.f_back


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


# The named loops by places in code: by the code's identity, which its hash would be too slow for, so it is kept alive.
_known: dict[tuple[int, int], tuple[CodeType, _Named]] = {}


def _named(code: CodeType, at: int) -> _Named:
    if not is_users(code.co_filename):
        return ()
    line = _line(code, at)
    where = os.path.basename(code.co_filename)
    return tuple(
        (f"{loop.counter or 'batch'} in the loop at {where}:{loop.line}", loop)
        for loop in around(code, line)
        if loop.counter or loop.targets
    )


def _line(code: CodeType, at: int) -> int:
    return next((line for start, end, line in code.co_lines() if start <= at < end and line), code.co_firstlineno)
