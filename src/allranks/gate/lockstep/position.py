"""Read the position of the training thread in its loops, from the running frames of the user's code."""

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
from allranks.gate.lockstep.loops import SourceLoop, loops_around_line
from allranks.gate.lockstep.steps import LoopElement, LoopPosition

# Hooks that return the number of the batch that a loop variable holds, None if it holds none.
batch_number_hooks: list[Callable[[Any], int | None]] = []

# Hooks that return a name of a value that is the same on every rank, "" for none.
label_hooks: list[Callable[[Any], str]] = []
# Collections of more elements are not compared.
_MOST_ELEMENTS = 10_000

# A place in code: its counting loops, with the names that they have on every rank.
_Named = Sequence[tuple[str, SourceLoop]]


def read_loop_counts(thread: int) -> LoopPosition:
    """Return the loop counts of a thread. The thread must be the calling one, or wait."""
    found: list[tuple[str, int]] = []
    for frame, named in _frames_in_loops(thread):
        variables = frame.f_locals
        found[:0] = [(name, count) for name, loop in named if (count := _loop_count(loop, variables)) is not None]
    return LoopPosition(tuple(found))


def read_loop_elements(thread: int, *, all_collections: bool) -> list[LoopElement]:
    """Return the elements at which the loops of a thread are. The thread must be the calling one, or wait.

    Only loops over sets, and over dicts of strings, are read. With ``all_collections``, loops over any collection are,
    including collections of parameters.
    """
    found = []
    for frame, named in _frames_in_loops(thread):
        for name, loop in named:
            collection = _iterated_collection(loop, frame) if loop.over and loop.targets else None
            if not isinstance(collection, Collection if all_collections else set | frozenset | Mapping):
                continue
            words = _element_name(collection, frame.f_locals.get(loop.targets[0]), all_collections)
            if words and len(collection) <= _MOST_ELEMENTS:
                elements = sorted(filter(None, (_stable_name(one, all_collections) for one in collection)))
                where = name.partition(" ")[2]
                found.append(LoopElement(where, words, show(digest(*elements))))
    return found


def _element_name(collection: Any, value: Any, all_collections: bool) -> str:
    """Return a name of an element that is the same on every rank; for a value of a dict possibly its key's name."""
    if isinstance(collection, Mapping) and not _stable_name(value, all_collections):
        value = next((key for key, one in collection.items() if one is value), None)
    return _stable_name(value, all_collections)


def _stable_name(value: Any, all_collections: bool) -> str:
    """Return a name of a value that is the same on every rank; "" if there is none."""
    if isinstance(value, str | bytes | Enum):
        return repr(value)
    found = (label(value) for label in label_hooks) if all_collections else ()
    return next(filter(None, found), "")


def _iterated_collection(loop: SourceLoop, frame: FrameType) -> Any:
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


def _frames_in_loops(thread: int) -> Iterator[tuple[FrameType, _Named]]:
    """Yield the frames of the user's code in which a thread is in loops, innermost first, each with these loops."""
    frame = sys._getframe(2) if thread == get_ident() else sys._current_frames().get(thread)
    while frame is not None:
        code = frame.f_code
        known = _known.get((id(code), frame.f_lasti))
        if known is None:
            known = _known[id(code), frame.f_lasti] = code, _named_loops(code, frame.f_lasti)
        if known[1]:
            yield frame, known[1]
        frame = frame.f_back


def _loop_count(loop: SourceLoop, variables: Any) -> int | None:
    if loop.counter:
        value = variables.get(loop.counter)
        return value if type(value) is int else None
    for target in loop.targets:
        value = variables.get(target)
        for number_of in batch_number_hooks:
            if (number := number_of(value)) is not None:
                return number
    return None


# The named loops by places in code: by the code's identity, which its hash would be too slow for, so it is kept alive.
_known: dict[tuple[int, int], tuple[CodeType, _Named]] = {}


def _named_loops(code: CodeType, at: int) -> _Named:
    if not is_users(code.co_filename):
        return ()
    line = _line_of_instruction(code, at)
    where = os.path.basename(code.co_filename)
    return tuple(
        (f"{loop.counter or 'batch'} in the loop at {where}:{loop.line}", loop)
        for loop in loops_around_line(code, line)
        if loop.counter or loop.targets
    )


def _line_of_instruction(code: CodeType, at: int) -> int:
    return next((line for start, end, line in code.co_lines() if start <= at < end and line), code.co_firstlineno)
