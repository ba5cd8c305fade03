"""Read the Python stacks of this process's threads from another thread, and group ranks with equal stacks."""

from __future__ import annotations

import linecache
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FrameType

from allranks.callsite import is_users, short_path
from allranks.failure import one_line
from allranks.hang.sites import Frame
from allranks.world.claims import by_claim

_HOUSE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Frames of one stack, from the innermost one out.
_DEEPEST = 100
# Our own threads: nobody looks for a fault there.
OURS = "allranks"


@lru_cache(maxsize=4096)
def _file_facts(filename: str) -> tuple[str, bool]:
    return short_path(filename), is_users(filename)


def frames_outward(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and then its callers, from the innermost frame outwards."""
    for _ in range(_DEEPEST):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def read_stack(frame: FrameType | None) -> tuple[Frame, ...]:
    """Return a stack as frames, innermost frame first."""
    found = []
    for step in frames_outward(frame):
        file, users = _file_facts(step.f_code.co_filename)
        found.append(Frame(file, one_line(step.f_code.co_name), step.f_lineno or 0, users))
    return tuple(found)


def format_stack(frame: FrameType | None) -> str:
    """Return a stack as Python prints it, innermost frame last.

    It shows only source lines that were read before the hang: a file system that hangs must not block this thread.
    """
    steps = [(step.f_code, step.f_lineno or 0) for step in frames_outward(frame)]
    while any(_is_users(code.co_filename) for code, _ in steps) and not _is_users(steps[-1][0].co_filename):
        steps.pop()  # what started the program, or the thread
    while len(steps) > 1 and steps[0][0].co_filename.startswith(_HOUSE):
        del steps[0]
    words = [
        f"{_file_facts(code.co_filename)[0]}:{line} in {one_line(code.co_name)}{_source_line(code, line)}"
        for code, line in steps
    ]
    return "\n".join(reversed(words))


def _is_users(file: str) -> bool:
    return _file_facts(file)[1] and not file.startswith("<")


def _source_line(code: CodeType, line: int) -> str:
    name = code.co_filename
    source = linecache.getline(name, line).strip() if name in linecache.cache else ""
    return f":  {one_line(source.expandtabs(4))}" if source else ""


def of_others(but: int) -> dict[str, FrameType]:
    """Return, by thread name, the innermost frames of all threads except the thread ``but`` (ident) and our own."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: dict[str, FrameType] = {}
    for ident, frame in sys._current_frames().items():
        name = names.get(ident, f"thread {ident}")
        if ident != but and not name.startswith(OURS):
            found[name if name not in found else f"{name} ({ident})"] = frame
    return found


def group_equal_stacks(stacks: Mapping[int, str]) -> list[tuple[str, tuple[int, ...]]]:
    """Group ranks whose stacks are equal. Return (stack, ranks) pairs, the smallest group first.

    >>> alike({0: "a", 1: "b", 2: "a"}) [('b', (1,)), ('a', (0, 2))]
    """
    groups = by_claim(sorted(stacks.items()))
    return sorted(((stack, tuple(ranks)) for stack, ranks in groups.items()), key=lambda group: (len(group[1]), group))


def remember_sources(filenames: Iterable[str]) -> None:
    """Read the user's sources among these files now, so that their lines are known during a hang."""
    for filename in filenames:
        if filename not in linecache.cache and _file_facts(filename)[1]:
            linecache.getlines(filename)
            linecache.cache.setdefault(filename, (0, None, [], filename))


def of_dump(text: str) -> str:
    """Return the main thread's stack from the output of ``faulthandler``, in the format of a Python traceback."""
    return format_dump(threads_of_dump(text)[-1])


def threads_of_dump(text: str) -> list[tuple[Frame, ...]]:
    """Return the stacks in the output of ``faulthandler``, innermost frame first; the main thread's stack is last."""
    return [tuple(_frames_of_dump(thread)) for thread in text.strip().split("\n\n")]


def _frames_of_dump(thread: str) -> Iterator[Frame]:
    for line in thread.splitlines():
        if match := _DUMPED.fullmatch(line.strip()):
            file, users = _file_facts(match[1])
            yield Frame(file, match[3], int(match[2]), users)


def format_dump(frames: Sequence[Frame]) -> str:
    """Return the lines of a stack from ``threads_of_dump``, in the format in which Python prints a stack."""
    steps = list(frames)
    users = [at for at, step in enumerate(steps) if step.users and not step.file.startswith("<")]
    if users:
        del steps[users[-1] + 1 :]  # what started the program, or the thread
    return "\n".join(f"{step.file}:{step.line} in {step.function}" for step in reversed(steps))


_DUMPED = re.compile(r'File "(.*)", line (\d+) in (.*)')
