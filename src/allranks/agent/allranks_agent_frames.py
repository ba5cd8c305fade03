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
from collections.abc import Iterator
from types import TracebackType

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # the package allranks
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
GROUP = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.11


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
    kept = [(one, one.__traceback__, getattr(one, "__notes__", None)) for one in _related_exceptions(error)]
    try:
        if not os.environ.get("ALLRANKS_FULL_TRACEBACK"):
            for one, trace, notes in kept:
                one.__traceback__ = _trim_traceback(one, trace)
                if notes and "ALLRANKS_CONTROL" in os.environ:
                    one.__notes__ = [note for note in notes if not isinstance(note, RemoteTraceback)]
        yield
    finally:
        for one, trace, notes in kept:
            one.__traceback__ = trace
            if notes:
                one.__notes__ = notes


def attach() -> None:
    """Show exceptions without our frames, unless the program has set sys.excepthook."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_without_frames


def _show_without_frames(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    with hidden(error):
        sys.__excepthook__(kind, error, error.__traceback__ if error.__traceback__ is not None else trace)


def _related_exceptions(error: BaseException) -> list[BaseException]:
    """Return an exception, the exceptions in its group, and the exceptions that led to them."""
    found: list[BaseException] = []
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop()
        if one is not None and all(one is not other for other in found):
            found.append(one)
            queue += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, GROUP) else ())]
    return found


def _trim_traceback(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    steps: list[TracebackType] = []
    while trace is not None:
        steps.append(trace)
        trace = trace.tb_next
    files = [step.tb_frame.f_code.co_filename for step in steps]
    is_ours = [file.startswith(OURS) for file in files]
    last = max((place for place, ours in enumerate(is_ours) if ours), default=-1)
    of_ours = type(error).__module__.partition(".")[0] == "allranks"
    if not of_ours and not any(is_users(file) for file in files[last + 1 :]):
        return steps[0] if steps else None
    kept = [step for step, ours in zip(steps, is_ours, strict=True) if not ours] or steps
    below: TracebackType | None = None
    for step in reversed(kept):
        below = TracebackType(below, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return below
