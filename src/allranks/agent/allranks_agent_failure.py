"""An exception, put into the fields of `allranks.failure.Failure`."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import TypedDict

# A datagram holds about 200 kB; the two ends of a longer traceback say what happened.
HEAD, TAIL = 16_000, 48_000
START = os.getcwd()
# The rank and the host's name that this process fails as.
SPEAKER = 0, ""
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # the package allranks


class Failure(TypedDict):
    rank: int
    host: str
    what: str
    when: float
    where: str
    traceback: str
    thread: str
    exit_code: int


def of(error: BaseException, *, thread: str = "", frame: FrameType | None = None) -> Failure:
    """Return the failure that an exception is; `frame` is where it is about to be raised, if it has not been yet."""
    steps = list(_raised_through(error) if frame is None else _called_from(frame))
    text = "" if isinstance(error, SystemExit) else "".join(traceback.format_exception(error))
    return {
        "rank": SPEAKER[0],
        "host": SPEAKER[1],
        "what": _what(error),
        "when": time.time(),
        "where": _where(error, steps),
        "traceback": text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n...\n{text[-TAIL:]}",
        "thread": thread,
        "exit_code": exit_code_of(error),
    }


def exit_code_of(error: BaseException) -> int:
    """Return the exit code, 0-255, that Python gives a program ended by this exception."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def that_ended_main() -> BaseException | None:
    """Return the exception that Python has just shown because it ended the program, if one did.

    Python keeps the last exception it showed. It has ended the program, and not merely been shown by some C code in a
    callback, if it came out of the main module.
    """
    error: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None or error.__traceback__ is None:
        return error if isinstance(error, SyntaxError) else None
    outermost = error.__traceback__.tb_frame
    module, function = outermost.f_globals.get("__name__"), outermost.f_code.co_name
    return error if (module, function) in {("__main__", "<module>"), ("runpy", "_run_module_as_main")} else None


def _what(error: BaseException) -> str:
    if not isinstance(error, SystemExit):
        kind = type(error)
        name = (
            kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
        )
        says = str(error.msg if isinstance(error, SyntaxError) else error).strip().partition("\n")[0]
        return f"{name}: {says}" if says else name
    says = "" if error.code is None or isinstance(error.code, int) else f": {error.code}"
    return f"left with exit code {exit_code_of(error)}{says}"


def _raised_through(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    """Yield the code and line of each frame an exception came through, innermost first."""
    steps: list[TracebackType] = []
    step = error.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    return ((step.tb_frame.f_code, step.tb_lineno) for step in reversed(steps))


def _called_from(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def _where(error: BaseException, steps: list[tuple[CodeType, int]]) -> str:
    """Return the innermost line of the user's code, or of any code but ours where there is none of his."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(error.filename)}:{error.lineno}"
    places = [(code.co_filename, line) for code, line in steps if not code.co_filename.startswith(OURS)]
    users = [place for place in places if _is_users(place[0])]
    # A dataclass's __init__ has no file; but then neither has what `python -c` runs.
    own = [place for place in users if not place[0].startswith("<")] or users or places[:1]
    return f"{_shown(own[0][0])}:{own[0][1]}" if own else ""


def _is_users(filename: str) -> bool:
    installed = f"{os.sep}site-packages{os.sep}" in filename or f"{os.sep}dist-packages{os.sep}" in filename
    return not (installed or filename.startswith(("<frozen ", STANDARD_LIBRARY)))


def _shown(filename: str) -> str:
    """Return a path as the user would type it, where he started the job."""
    return os.path.relpath(filename, START) if filename.startswith(START + os.sep) else filename
