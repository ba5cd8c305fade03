"""Convert an exception into the fields of `allranks.failure.Failure`.

Only here does an exception of the program become text. Its `__str__` may raise. Its message may have three million
characters, or lone surrogates (of a file name), which no stream and no store accepts.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, TracebackType
from typing import Any, TypedDict

import allranks_agent_frames as frames  # type: ignore[import-not-found]

# Of a longer traceback both ends are kept.
HEAD, TAIL = 8_000, 24_000  # bytes
LONGEST_LINE = 1_000  # characters of an exception's message
MOST_BEFORE = 8  # exceptions of a chain
try:
    START = os.getcwd()
except FileNotFoundError:  # a folder that was removed
    START = ""
# The rank and the host's name in this process' failures.
RANK = 0, ""


# C0 and C1 controls but tab and newline, marks of direction, characters without width, separators of lines, surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_IN_A_LINE = re.compile(f"[\t\n]|{_HIDDEN.pattern}")


_LONG = 1 << (8 * struct.calcsize("l") - 1)
_here = threading.local()

# What the names of our own threads begin with.
_OUR_THREADS = "allranks-"


class Failure(TypedDict):
    rank: int
    host: str
    what: str
    when: float
    where: str
    traceback: str
    thread: str
    exit_code: int
    before: str


def of(
    error: BaseException, *, thread: str = "", frame: FrameType | None = None, handling: BaseException | None = None
) -> Failure:
    """Return the failure that describes an exception. Never raises, whatever the program's exception does.

    `frame` is where the exception is about to be raised, if it has not been raised yet. `handling` is the exception
    that is being handled there.
    """
    before, _here.is_describing = is_describing(), True
    try:
        return _describe(error, thread, frame, handling)
    finally:
        _here.is_describing = before


def is_describing() -> bool:
    """Return whether this thread is in `of`: then an exception's `__str__` may exit, which is no end of the program."""
    return getattr(_here, "is_describing", False)


def _describe(error: BaseException, thread: str, frame: FrameType | None, handling: BaseException | None) -> Failure:
    chain = _causes_of(error, handling)
    # A program that catches an error and leaves by sys.exit(1) has failed where the error was raised.
    is_exit = frames.is_a(error, SystemExit)
    shown = chain[0] if chain and is_exit and _is_number(_exit_argument(error)) else error
    leaf = _innermost_exception(shown)
    raised = leaf if frames.field(leaf, "__traceback__") is not None else shown
    steps = _called_from(frame) if frame is not None and shown is error else _raised_through(raised)
    if thread.startswith(_OUR_THREADS):
        thread, steps = "", iter(())  # its message names the place
    return {
        "rank": RANK[0],
        "host": RANK[1],
        "what": _describe_exception(error)
        if shown is error
        else f"{_describe_exception(error)} after {text_of(shown)}",
        "when": time.time(),
        "where": frames.call_or_default(lambda: printable(_users_line(raised, list(steps))), ""),
        "traceback": "" if frames.is_a(shown, SystemExit) else traceback_of(shown),
        "thread": printable(thread),
        "exit_code": exit_code_of(error),
        "before": "\n".join(map(text_of, chain)),
    }


def text_of(error: BaseException) -> str:
    """Return an exception as one printable line of bounded length: "ValueError: bad row". Never raises.

    For a group, the first exception in it is added.
    """
    name = frames.call_or_default(lambda: _name_of(type(error)), "an exception")
    says = frames.call_or_default(lambda: _message_line(error), "(its __str__ raises)")
    leaf = _innermost_exception(error)
    inner = "" if leaf is error else f": {text_of(leaf)}"
    return printable(f"{name}: {says}{inner}" if says else name + inner)


def message_of(error: BaseException) -> str:
    """Return the message of an exception, with all its lines, as printable text of bounded length. Never raises."""
    return _shorten_middle(frames.call_or_default(lambda: str.__str__(str(error)), "(its __str__ raises)"))


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, without our frames, as printable text of bounded length. Never raises."""
    with frames.hidden(error):
        text = frames.call_or_default(lambda: "".join(traceback.format_exception(error)), "")
    names: list[str] = []
    names = frames.call_or_default(lambda: [*_names_in(error, *_causes_of(error, None))], names)
    for name in dict.fromkeys(names):
        if not name.isprintable():  # it may contain line ends
            text = text.replace(name, one_line(name))
    return _shorten_middle(text or frames.call_or_default(lambda: _plain_traceback(error), text_of(error)))


def _names_in(*errors: BaseException) -> Iterator[str]:
    """Yield the names of classes, files and functions in the tracebacks of exceptions."""
    for error in errors:
        yield frames.field(type(error), "__qualname__", type)
        for code, _ in _raised_through(error):
            yield from (code.co_filename, code.co_name)


def _shorten_middle(text: str, head: int = HEAD, tail: int = TAIL) -> str:
    raw = text.encode(errors="backslashreplace")
    if len(raw) > head + tail:
        raw = raw[:head] + b"\n...\n" + raw[-tail:]
    return raw.decode(errors="ignore")


def shorten(failure: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return a failure whose texts have at most about `most` bytes each: the beginning and the end of each is kept."""
    return {
        name: _shorten_middle(value, most // 4, most - most // 4) if isinstance(value, str) else value
        for name, value in failure.items()
    }


def visible(text: str) -> str:
    """Return a text in which characters that a terminal hides or acts on are escapes. Tabs and line ends are kept.

    All output of allranks passes through this function or `one_line`. Both also replace lone surrogates.
    """
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(_escape, text)


def one_line(text: str) -> str:
    """Return a text as one line: as `visible`, and tabs and line ends are escapes, too."""
    return text if text.isascii() and text.isprintable() else _IN_A_LINE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def printable(text: str) -> str:
    """Return a text as one line of bounded length that every stream accepts."""
    text = str.__str__(text)
    if len(text) > LONGEST_LINE:
        text = f"{text[:LONGEST_LINE]}... ({len(text)} characters)"
    return one_line(text)


def _name_of(kind: type[BaseException]) -> str:
    module, name = (frames.field(kind, name, type) for name in ("__module__", "__qualname__"))
    is_local = type(module) is not str or module in ("builtins", "__main__")
    return name if is_local else f"{module}.{frames.field(kind, '__name__', type)}"


def _message_line(error: Any) -> str:
    says = str.__str__(str(error.msg if frames.is_a(error, SyntaxError) else error)).strip()
    return says.partition("\n")[0]


def _innermost_exception(error: BaseException) -> BaseException:
    """Return the first exception in a group (also in nested groups), or the exception itself if it is no group."""
    while inside := frames.members(error):
        error = inside[0]
    return error


def _causes_of(error: BaseException, handling: BaseException | None) -> list[BaseException]:
    """Return the exceptions that led to this one: causes, and exceptions being handled when it was raised.

    The nearest is first.
    """
    chain: list[BaseException] = []
    following = _raised_during(error)
    following = handling if following is None else following
    while following is not None and following is not error and len(chain) < MOST_BEFORE:
        chain.append(following)
        following = _raised_during(following)
    return chain


def _raised_during(error: BaseException) -> BaseException | None:
    cause: BaseException | None = frames.field(error, "__cause__")
    if cause is None and not frames.field(error, "__suppress_context__"):
        cause = frames.field(error, "__context__")
    return cause


def _is_number(code: object) -> bool:
    return code is None or frames.is_a(code, int)


def _plain_traceback(error: BaseException) -> str:
    places = [f'  File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in _raised_through(error)]
    return "\n".join(["Traceback (most recent call last):", *reversed(places), text_of(error)])


def exit_code_of(error: BaseException) -> int:
    """Return the exit code, 0-255, that Python gives a program ended by this exception."""
    if frames.is_a(error, KeyboardInterrupt):
        return 130
    if not frames.is_a(error, SystemExit):
        return 1
    code = _exit_argument(error)
    if code is None:
        return 0
    if not frames.is_a(code, int):
        return 1
    number = int.__index__(code)
    return number & 0xFF if -_LONG <= number < _LONG else 255  # Python takes -1 for a code that is no C long


def _exit_argument(error: Any) -> Any:
    return frames.call_or_default(lambda: error.code, error)  # as Python, it prints the exception if that raises


def clear_raised_in_exit() -> None:
    """Clear an exception that is set although no code handles it: Python 3.13 leaves one if an exit code cannot print.

    Every call of a C function would fail with SystemError until then; the first failure clears the exception.
    """
    try:
        os.getpid()
    except SystemError:
        return


def that_ended_main() -> BaseException | None:
    """Return the exception that ended the program and that Python has just shown, or None.

    Python keeps the last exception it showed. If that exception came out of the main module, it has ended the program.
    Otherwise some C code may only have shown it, in a callback.
    """
    error: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    trace = None if error is None else frames.field(error, "__traceback__")
    if trace is None:
        return error if frames.is_a(error, SyntaxError) else None
    outermost = trace.tb_frame
    module, function = outermost.f_globals.get("__name__"), outermost.f_code.co_name
    return error if (module, function) in {("__main__", "<module>"), ("runpy", "_run_module_as_main")} else None


def _describe_exception(error: BaseException) -> str:
    if not frames.is_a(error, SystemExit):
        return text_of(error)
    code = f"left with exit code {exit_code_of(error)}"
    argument = _exit_argument(error)
    if _is_number(argument):
        return printable(code)
    says = frames.call_or_default(lambda: str.__str__(str(argument)), "(its __str__ raises)")
    return printable(f"{code}: {says}" if says else code)


def _raised_through(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    """Yield the code and line of each frame through which an exception passed, the innermost first."""
    steps: list[TracebackType] = []
    step: TracebackType | None = frames.field(error, "__traceback__")
    while step is not None:
        steps.append(step)
        step = step.tb_next
    return ((step.tb_frame.f_code, step.tb_lineno) for step in reversed(steps))


def _called_from(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def _users_line(error: Any, steps: list[tuple[CodeType, int]]) -> str:
    """Return the innermost line of the user's code. If there is none, return a line of any other code but ours."""
    if frames.is_a(error, SyntaxError) and error.filename:
        return f"{_relative_path(error.filename)}:{error.lineno}"
    places = [(code.co_filename, line) for code, line in steps if not code.co_filename.startswith(frames.OURS)]
    users = [place for place in places if frames.is_users(place[0])]
    # A dataclass's __init__ has no file; but then neither has what `python -c` runs.
    own = [place for place in users if not place[0].startswith("<")] or users or places[:1]
    return f"{_relative_path(own[0][0])}:{own[0][1]}" if own else ""


def _relative_path(filename: str) -> str:
    """Return a path relative to the folder in which the job was started, if it is below that."""
    return os.path.relpath(filename, START) if START and filename.startswith(START + os.sep) else filename
