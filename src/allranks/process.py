"""Read the kernel's information about a process of this machine."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable
from pathlib import Path

# In the kernel's flags of a process: it has begun to end.
_PF_EXITING = 0x4


def wait_readable(descriptors: Iterable[int], seconds: float | None) -> list[int]:
    """Wait until one of the descriptors is readable, at most ``seconds`` (None: for ever); return those that are.

    Unlike ``select.select``, this works for descriptors from 1024 on, which a job of many ranks has.
    """
    poll = select.poll()
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if seconds is None else max(0.0, seconds) * 1000)]


def wait_code_of(pid: int) -> int | None:
    """Return the wait code of a process that has ended and that its parent has not collected yet.

    Otherwise return None.
    """
    state, *fields = _stat(pid)
    return os.waitstatus_to_exitcode(int(fields[-1])) if state == "Z" else None


def started(pid: int) -> int | None:
    """Return when a process of this machine started, in kernel ticks since boot, or None if it has ended."""
    state, *fields = _stat(pid)
    return None if state in ("Z", "X") else int(fields[18])


def command_line(pid: int) -> list[str]:
    """Return the command of a process of this machine, as words; no words if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [os.fsdecode(word) for word in words[:-1]]


def is_ending(pid: int) -> bool:
    """Return whether a process has begun to end, or has ended.

    Its connections close while it ends, so other processes may notice that before the kernel reports it as dead.
    """
    state, *fields = _stat(pid)
    return state in ("Z", "X") or bool(int(fields[5]) & _PF_EXITING)


def is_suspended(pid: int) -> bool:
    """Return whether a process is stopped, by SIGSTOP or by a debugger."""
    return _stat(pid)[0] in ("T", "t")


def _stat(pid: int) -> list[str]:
    """Return the fields of a process in /proc from its state on (proc_pid_stat(5)), or ``["X"]`` if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["X"]
