"""Convert an exception into the fields of `allranks.failure.Failure`.

Only here does an exception of the program become text. Its `__str__` may raise. Its message may have three million
characters, or lone surrogates (of a file name), which no stream and no store accepts.
"""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, TracebackType
from typing import Any, TypedDict, TypeVar

import allranks_agent_frames as frames  # type: ignore[import-not-found]

T = TypeVar("T")

# Of a longer traceback both ends are kept.
HEAD, TAIL = 8_000, 24_000  # bytes
LONGEST_LINE = 1_000  # characters of an exception's message
MOST_BEFORE = 8  # exceptions of a chain
GROUP = frames.GROUP
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
    chain = _causes_of(error, handling)
    # A program that catches an error and leaves by sys.exit(1) has failed where the error was raised.
    shown = chain[0] if chain and isinstance(error, SystemExit) and _is_number(error.code) else error
    raised = _innermost_exception(shown) if _innermost_exception(shown).__traceback__ is not None else shown
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
        "where": _call_or_default(lambda: printable(_users_line(raised, list(steps))), ""),
        "traceback": "" if isinstance(shown, SystemExit) else traceback_of(shown),
        "thread": printable(thread),
        "exit_code": exit_code_of(error),
        "before": "\n".join(map(text_of, chain)),
    }


def text_of(error: BaseException) -> str:
    """Return an exception as one printable line of bounded length: "ValueError: bad row". Never raises.

    For a group, the first exception in it is added.
    """
    name = _call_or_default(lambda: _name_of(type(error)), "an exception")
    says = _call_or_default(lambda: _message_line(error), "(its __str__ raises)")
    leaf = _innermost_exception(error)
    inner = "" if leaf is error else f": {text_of(leaf)}"
    return printable(f"{name}: {says}{inner}" if says else name + inner)


def message_of(error: BaseException) -> str:
    """Return the message of an exception, with all its lines, as printable text of bounded length. Never raises."""
    return _shorten_middle(_call_or_default(lambda: str.__str__(str(error)), "(its __str__ raises)"))


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, without our frames, as printable text of bounded length. Never raises."""
    with frames.hidden(error):
        text = _call_or_default(lambda: "".join(traceback.format_exception(error)), "")
    names: list[str] = []
    names = _call_or_default(lambda: [type(one).__qualname__ for one in (error, *_causes_of(error, None))], names)
    for name in names:
        if not name.isprintable():  # it may contain line ends
            text = text.replace(name, one_line(name))
    return _shorten_middle(text or _call_or_default(lambda: _plain_traceback(error), text_of(error)))


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
    is_local = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_local else f"{kind.__module__}.{kind.__name__}"


def _message_line(error: BaseException) -> str:
    says = str.__str__(str(error.msg if isinstance(error, SyntaxError) else error)).strip()
    return says.partition("\n")[0]


def _call_or_default(make: Callable[[], T], otherwise: T) -> T:
    """Return `make()`, or `otherwise` if it raises. `make` may run the program's code (an exception's `__str__`)."""
    try:
        return make()
    except BaseException:
        return otherwise


def _innermost_exception(error: BaseException) -> BaseException:
    """Return the first exception in a group (also in nested groups), or the exception itself if it is no group."""
    return _innermost_exception(error.exceptions[0]) if isinstance(error, GROUP) else error


def _causes_of(error: BaseException, handling: BaseException | None) -> list[BaseException]:
    """Return the exceptions that led to this one: causes, and exceptions being handled when it was raised.

    The nearest is first.
    """
    chain: list[BaseException] = []
    following = _raised_during(error) or handling
    while following is not None and following is not error and len(chain) < MOST_BEFORE:
        chain.append(following)
        following = _raised_during(following)
    return chain


def _raised_during(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_number(code: object) -> bool:
    return code is None or isinstance(code, int)


def _plain_traceback(error: BaseException) -> str:
    places = [f'  File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in _raised_through(error)]
    return "\n".join(["Traceback (most recent call last):", *reversed(places), text_of(error)])


def exit_code_of(error: BaseException) -> int:
    """Return the exit code, 0-255, that Python gives a program ended by this exception."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


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
    if error is None or error.__traceback__ is None:
        return error if isinstance(error, SyntaxError) else None
    outermost = error.__traceback__.tb_frame
    module, function = outermost.f_globals.get("__name__"), outermost.f_code.co_name
    return error if (module, function) in {("__main__", "<module>"), ("runpy", "_run_module_as_main")} else None


def _describe_exception(error: BaseException) -> str:
    if not isinstance(error, SystemExit):
        return text_of(error)
    code = f"left with exit code {exit_code_of(error)}"
    says = "" if _is_number(error.code) else _call_or_default(lambda: str(error.code), "(its __str__ raises)")
    return printable(f"{code}: {says}" if says else code)


def _raised_through(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    """Yield the code and line of each frame through which an exception passed, the innermost first."""
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


def _users_line(error: BaseException, steps: list[tuple[CodeType, int]]) -> str:
    """Return the innermost line of the user's code. If there is none, return a line of any other code but ours."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative_path(error.filename)}:{error.lineno}"
    places = [(code.co_filename, line) for code, line in steps if not code.co_filename.startswith(frames.OURS)]
    users = [place for place in places if frames.is_users(place[0])]
    # A dataclass's __init__ has no file; but then neither has what `python -c` runs.
    own = [place for place in users if not place[0].startswith("<")] or users or places[:1]
    return f"{_relative_path(own[0][0])}:{own[0][1]}" if own else ""


def _relative_path(filename: str) -> str:
    """Return a path relative to the folder in which the job was started, if it is below that."""
    return os.path.relpath(filename, START) if START and filename.startswith(START + os.sep) else filename
