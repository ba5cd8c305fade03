"""Raise NoStandardInput if a rank without standard input reads it: several ranks cannot share one input."""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import NoReturn


class NoStandardInput(io.UnsupportedOperation):
    """Raised when a rank that has no standard input reads it."""

    __module__ = "allranks"


class _NoInput(io.RawIOBase):
    """An input that raises when it is read.

    (/dev/null would be an empty input, or end `breakpoint()`, without a reason.)
    """

    name = "<stdin>"

    def __init__(self, why: str) -> None:
        self._why = why

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def readinto(self, _buffer: object) -> NoReturn:
        raise NoStandardInput(self._why)


def attach(rank: int, host: str, size: int) -> None:
    """Make reads of `sys.stdin` and `breakpoint()` raise, if the job has several ranks and their input is /dev/null."""
    if size == 1 or sys.stdin is None or not _is_null(0):
        return
    why = (
        f"rank {rank} (host {host}): read standard input: a job of {size} ranks has none, as each would take a part "
        "of it. Run with -n 1, where input() and breakpoint() work, or read a file."
    )
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(_NoInput(why)))  # type: ignore[misc]
    if "PYTHONBREAKPOINT" not in os.environ and sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = lambda *_, **__: sys.stdin.readline()  # pdb would show its own frames, too


def _is_null(fd: int) -> bool:
    try:
        found = os.fstat(fd)
        return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.stat(os.devnull).st_rdev
    except OSError:
        return False
