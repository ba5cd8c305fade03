"""Show tracebacks without the frames of allranks, which do not help the user.

Under `allranks run` another rank's traceback is left out, too: that rank shows it itself. Our frames are kept if they
may be at fault: for an exception that is not ours, raised in our code or in a library that our code called.
ALLRANKS_FULL_TRACEBACK=1 keeps all frames.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # the package allranks
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
GROUP = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.11
MOST_RELATED = 500  # exceptions in which our frames are hidden; Python shows 15 of a group


def is_a(thing: object, kind: Any) -> bool:
    """Return whether the type of a thing is one of `kind`, also if its `__class__` raises."""
    return issubclass(type(thing), kind)


def field(thing: Any, name: str, owner: Any = BaseException) -> Any:
    """Return what the built-in class `owner` keeps under a name, also if the program's class overrides the name."""
    return vars(owner)[name].__get__(thing)


def members(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions in a group, and none for any other exception."""
    inside: tuple[BaseException, ...] = field(error, "exceptions", GROUP) if is_a(error, GROUP) else ()
    return inside


def call_or_default(make: Callable[[], T], otherwise: T) -> T:
    """Return `make()`, or `otherwise` if it raises. `make` may run the program's code (an exception's `__str__`)."""
    try:
        return make()
    except BaseException:
        return otherwise


def is_users(filename: str) -> bool:
    """Return whether a source file is the user's: neither in the standard library nor installed."""
    installed = f"{os.sep}site-packages{os.sep}" in filename or f"{os.sep}dist-packages{os.sep}" in filename
    return not (installed or filename.startswith(("<frozen ", STANDARD_LIBRARY)))


class RemoteTraceback(str):
    """A note of an exception: the traceback of the rank that raised it."""

    __slots__ = ()


@contextlib.contextmanager
def hidden(error: BaseException) -> Iterator[None]:
    """Hide our frames in the tracebacks of an exception and of its causes, while the ``with`` block runs."""
    kept = [(one, field(one, "__traceback__"), _notes(one)) for one in _related_exceptions(error)]
    try:
        if not os.environ.get("ALLRANKS_FULL_TRACEBACK"):
            for one, trace, notes in kept:
                set_traceback(one, _trim_traceback(one, trace))
                if notes and "ALLRANKS_CONTROL" in os.environ:
                    _set_notes(one, [note for note in notes if not is_a(note, RemoteTraceback)])
        yield
    finally:
        for one, trace, notes in kept:
            set_traceback(one, trace)
            if notes:
                _set_notes(one, notes)


def _notes(error: Any) -> list[object] | None:
    notes = call_or_default(lambda: error.__notes__, None)
    return notes if type(notes) is list else None


def _set_notes(error: Any, notes: list[object]) -> None:
    call_or_default(lambda: setattr(error, "__notes__", notes), None)


def set_traceback(error: BaseException, trace: TracebackType | None) -> None:
    """Set the traceback of an exception, also if the program's class overrides the attribute."""
    vars(BaseException)["__traceback__"].__set__(error, trace)


def attach() -> None:
    """Show exceptions without our frames, unless the program has set sys.excepthook."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_without_frames


def _show_without_frames(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    with hidden(error):
        kept = field(error, "__traceback__")
        sys.__excepthook__(kind, error, kept if kept is not None else trace)


def _related_exceptions(error: BaseException) -> list[BaseException]:
    """Return an exception, the exceptions in its group, and the exceptions that led to them: the nearest, if many."""
    found = [error]
    known = {id(error)}
    for one in found:  # which grows
        near = (field(one, "__cause__"), field(one, "__context__"), *members(one)[:MOST_RELATED])
        for other in near:
            if other is not None and id(other) not in known and len(found) < MOST_RELATED:
                known.add(id(other))
                found.append(other)
    return found


def _trim_traceback(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    steps: list[TracebackType] = []
    while trace is not None:
        steps.append(trace)
        trace = trace.tb_next
    files = [step.tb_frame.f_code.co_filename for step in steps]
    is_ours = [file.startswith(OURS) for file in files]
    last = max((place for place, ours in enumerate(is_ours) if ours), default=-1)
    of_ours = call_or_default(lambda: field(type(error), "__module__", type).partition(".")[0] == "allranks", False)
    if not of_ours and not any(is_users(file) for file in files[last + 1 :]):
        return steps[0] if steps else None
    kept = [step for step, ours in zip(steps, is_ours, strict=True) if not ours] or steps
    below: TracebackType | None = None
    for step in reversed(kept):
        below = TracebackType(below, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return below
