"""Find out where a rank's main thread is while it is stopped in a call of a C library, which no hook of Python sees.

On SIGURG, CPython itself writes the stacks (``allranks_agent_stacks``), from within the signal handler and without its
lock. The signal goes to a thread that only waits, so that the stopped call is not interrupted.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time

from allranks.agent import load
from allranks.rehearse.probe.page import SIGNAL_THREAD, Page

_LINE = re.compile(r'  File "(.*)", line (\d+) in (.*)')
# Seconds: how long the stacks may take; how long after the last change they are complete; between two checks.
_PATIENCE, _QUIET, _LOOK = 1.0, 0.02, 0.0002
# How long a stopped call waits until no other thread of the rank runs.
_REST = 0.1
_END = b" in <module>\n"
_LONGEST = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)


class Stacks:
    """Reads the stacks of processes. For each process it keeps the path of its stack file."""

    def __init__(self) -> None:
        self._files: dict[int, str] = {}

    def of_main_thread(self, process: int, page: Page) -> tuple[tuple[str, int, str], ...]:
        """Return the frames of a process' main thread, the innermost first, or () if they are not available."""
        thread = page.get(SIGNAL_THREAD)
        if not thread:
            return ()
        if process not in self._files:
            self._files[process] = load("allranks_agent_stacks").file_of(process)
        path = self._files[process]
        if not path:
            return ()
        try:
            with open(path, "rb") as file:
                return _main_thread(_request(process, thread, file)) if _others_rest(process) else ()
        except OSError:
            return ()


def _others_rest(process: int) -> bool:
    """Wait until no thread of a process runs but its main thread, which is stopped; return whether that came.

    CPython reads the stacks of all threads, and must not read one that is changing: the process would crash.
    """
    until = time.monotonic() + _REST
    while any(_is_running(process, task) for task in os.listdir(f"/proc/{process}/task")):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK)
    return True


def _is_running(process: int, task: str) -> bool:
    try:
        with open(f"/proc/{process}/task/{task}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] == b"R"
    except FileNotFoundError:
        return False  # it has ended


def _request(process: int, thread: int, file: object) -> str:
    descriptor = file.fileno()  # type: ignore[attr-defined]
    before = os.fstat(descriptor).st_size
    if _libc.tgkill(process, thread, signal.SIGURG):
        return ""
    now = changed = time.monotonic()
    until, text = now + _PATIENCE, b""
    while now < until and not (text and (text.endswith(_END) or now - changed > _QUIET)):
        time.sleep(_LOOK)
        now = time.monotonic()
        if len(more := os.pread(descriptor, _LONGEST, before)) > len(text):
            text, changed = more, now
    return text.decode(errors="replace")


def _main_thread(text: str) -> tuple[tuple[str, int, str], ...]:
    """Return the frames of the last thread in the output of faulthandler, which writes the main thread last."""
    last = text.rstrip().split("\n\n")[-1]
    return tuple((m[1], int(m[2]), m[3]) for line in last.splitlines() if (m := _LINE.fullmatch(line)))
