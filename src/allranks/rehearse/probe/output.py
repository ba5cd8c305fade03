"""Record the lines that a rank prints and logs."""

from __future__ import annotations

import builtins
import functools
import logging
import sys
from collections import Counter
from typing import Any

from allranks.rehearse.probe.record import Recorder, is_main_thread

# How many lines of one statement are recorded, and so many characters of each.
_MOST, _LONGEST = 20, 200


def attach(recorder: Recorder) -> None:
    """Record calls of ``print`` by the program, and the records that it logs."""
    counts: Counter[int] = Counter()

    def note(text: str) -> None:
        place = recorder.place()
        counts[place] += 1
        if place and text.strip() and counts[place] <= _MOST:
            recorder.write("printed", place=place, text=text[:_LONGEST], count=counts[place])

    original = builtins.print

    @functools.wraps(original)
    def printing(*values: Any, **options: Any) -> None:
        original(*values, **options)
        if (
            options.get("file") in (None, sys.stdout, sys.stderr)
            and is_main_thread()
            and recorder.is_called_by_program()
        ):
            note(" ".join(map(str, values)))

    builtins.print = printing
    handle = logging.Logger.handle

    def handling(logger: Any, record: Any) -> None:
        handle(logger, record)
        if recorder.is_users(record.pathname) and is_main_thread() and _is_shown(logger, record):
            note(record.getMessage())

    logger_class: Any = logging.Logger
    logger_class.handle = handling


def _is_shown(logger: Any, record: Any) -> bool:
    """Return whether a record goes to stdout or stderr, and not only to files of the program."""
    while logger is not None:
        for handler in logger.handlers:
            if getattr(handler, "stream", None) in (sys.stdout, sys.stderr) and record.levelno >= handler.level:
                return True
        logger = logger.parent if logger.propagate else None
    return False
