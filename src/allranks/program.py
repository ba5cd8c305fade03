"""Check what the source of the user's program does: whether it makes a Checkpointer, and what it imports at first."""

from __future__ import annotations

import ast
import os
import re
import signal
import sys

# The message and the exit code if SIGTERM arrives before the program has made its Checkpointer.
NOT_YET = "nothing was saved: no Checkpointer was made yet"
NOTHING_SAVED = 1
# The exit code after SIGTERM if nothing is lost, of a rank and of its job.
PREEMPTED = 128 + signal.SIGTERM
# The exit code of a job that was ended for a hang: EX_TEMPFAIL of sysexits.h, try again.
HUNG = 75
_SAVER = re.compile(r"\b(Checkpointer|Ranks)\s*\(")


def makes_saver(text: str) -> bool:
    """Return whether a source text creates an object that saves on SIGTERM: a Checkpointer, or a callback ``Ranks``."""
    return "allranks" in text and _SAVER.search(text) is not None


def packages_at_start(text: str) -> frozenset[str]:
    """Return the packages that a source text imports before anything else can happen: not in a function, or an ``if``.

    Empty for a text that is not valid Python.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    names = [alias.name for one in body if isinstance(one, ast.Import) for alias in one.names]
    names += [one.module for one in body if isinstance(one, ast.ImportFrom) and one.module and not one.level]
    return frozenset(name.partition(".")[0] for name in names)


def main_makes_saver() -> bool:
    """Return whether the program of this process creates an object that saves on SIGTERM (see ``makes_saver``).

    Checked are its main file, and the imported modules in the same folder.
    """
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is None:
        return False
    folder = os.path.join(os.path.dirname(os.path.abspath(main)), "")
    files = {os.path.abspath(file) for one in list(sys.modules.values()) if (file := getattr(one, "__file__", None))}
    beside = (file for file in files if file.startswith(folder) and "site-packages" not in file)
    return any(makes_saver(_text(file)) for file in {main, *beside})


def _text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as source:
            return source.read()
    except OSError:
        return ""
