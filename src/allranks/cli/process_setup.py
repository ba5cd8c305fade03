"""Prepare a command for what it finds around it: closed standard streams, full disks, few descriptors, no folder."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import IO, cast

from allranks.failure import one_line

# Errors of the operating system that are no bug of ours and no fault of the input.
OUTSIDE = frozenset(
    [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE, errno.EBADF, errno.EMFILE, errno.ENFILE, errno.ENOMEM]
)
_ADVICE = {
    errno.ENOSPC: "Free space on that disk.",
    errno.EDQUOT: "Free space within your quota.",
    errno.EMFILE: "Raise the limit: ulimit -n 4096.",
    errno.ENFILE: "Close programs that hold many files open.",
    errno.ENOMEM: "Free memory.",
}
GONE = "the working folder does not exist any more. Change to another folder."


def open_closed_streams() -> str:
    """Open /dev/null in the place of each standard stream that is closed. Return a sentence if stdout was closed.

    Otherwise the next file that is opened would be the standard output of every process that this one starts.
    """
    closed = [fd for fd in (0, 1, 2) if not _is_open(fd)]
    for _ in closed:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for fd, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w", closefd=False))  # noqa: SIM115 - for as long as the process lives
    return "standard output is closed: what belongs there is lost." if 1 in closed else ""


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def has_working_folder() -> bool:
    """Return whether the working folder exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def discard_output(stream: IO[str]) -> None:
    """Let a stream that cannot be written end in /dev/null, so that Python does not fail to flush it at its end."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()


def describe_os_error(error: OSError) -> str:
    """Return an error of the operating system as a sentence, with what to do about it."""
    what = (
        f"{error.filename}: {error.strerror}" if error.filename else f"the output cannot be written: {error.strerror}"
    )
    return f"{one_line(what)}. {_ADVICE.get(cast(int, error.errno), '')}".rstrip()
