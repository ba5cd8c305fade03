"""Record each line of the program that this rank runs, at its first run."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import CodeType, FrameType
from typing import Any

from allranks.rehearse.probe.record import Recorder

# Before Python 3.12: after so many lines of one function that were run, no more are looked at.
_MOST = 20_000


def attach(recorder: Recorder) -> None:
    """Record the lines that run from now on, in all threads."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        _trace(_Lines(recorder))
    else:
        _monitor(_Lines(recorder), monitoring)


class _Lines:
    """The lines that were recorded."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._seen: set[tuple[str, int]] = set()

    def is_users(self, code: CodeType) -> bool:
        return self._recorder.is_users(code.co_filename)

    def add(self, code: CodeType, line: int) -> None:
        key = (code.co_filename, line)
        if key not in self._seen:
            self._seen.add(key)
            self._recorder.write("line", place=0, path=code.co_filename, line=line)


def _monitor(lines: _Lines, monitoring: Any) -> None:
    """Use ``sys.monitoring`` (Python 3.12): each line is reported once, then it costs nothing."""

    def on_line(code: CodeType, line: int) -> Any:
        if lines.is_users(code):
            lines.add(code, line)
        return monitoring.DISABLE

    tool = next(number for number in range(6) if monitoring.get_tool(number) is None)
    monitoring.use_tool_id(tool, "allranks")
    monitoring.register_callback(tool, monitoring.events.LINE, on_line)
    monitoring.set_events(tool, monitoring.events.LINE)


def _trace(lines: _Lines) -> None:
    """Use ``sys.settrace``. Functions are no longer traced once all their lines were seen."""
    counts: Counter[CodeType] = Counter()
    missing: dict[CodeType, set[int]] = {}

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001 - the interface of sys.settrace
        code = frame.f_code
        if code not in missing:
            missing[code] = {line for _, _, line in code.co_lines() if line} if lines.is_users(code) else set()
        return on_line if missing[code] else None

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
        code = frame.f_code
        if event == "line":
            lines.add(code, frame.f_lineno)
            missing[code].discard(frame.f_lineno)
            counts[code] += 1
            if counts[code] >= _MOST:
                missing[code] = set()
        return on_line if missing[code] else None

    threading.settrace(on_call)
    sys.settrace(on_call)
