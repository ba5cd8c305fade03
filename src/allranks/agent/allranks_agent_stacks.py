"""Let other processes of this machine read the Python stacks of this one, also while its Python cannot run.

`register` makes CPython write the stacks of all threads on SIGURG, from within the signal handler. So a call in C that
holds the GIL, an exit handler or a destructor does not prevent it. The stacks go to an anonymous file in memory. A
process that may read this process' descriptors finds it (`read`). A process without such a file is not signalled;
SIGURG is ignored by default.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import resource
import signal
import time
from collections.abc import Iterable, Iterator

NAME = "allranks-stacks"
_LINK = f"/memfd:{NAME} (deleted)"
_POLL_SECONDS, _QUIET_SECONDS = 0.01, 0.03  # between two reads; a file that does not change for so long is complete
_FAR = 900
_descriptor: int | None = None


def register() -> None:
    """Make this process write its stacks on SIGURG. May be called again. Does nothing on systems other than Linux."""
    global _descriptor
    if _descriptor is None and hasattr(os, "memfd_create"):
        file = os.memfd_create(NAME)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        _descriptor = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, min(_FAR, most - 1))  # the low ones are the program's
        os.close(file)
        faulthandler.register(signal.SIGURG, file=_descriptor, all_threads=True)


def read(pids: Iterable[int], seconds: float = 1.0) -> dict[int, str]:
    """Return the stacks of processes by pid, as `faulthandler` writes them.

    A process is left out if it has not registered, or does not answer within `seconds`.
    """
    readable = {pid: place for pid in pids if (place := file_of(pid))}
    before = {pid: _file_text(place) for pid, place in readable.items()}
    for pid in readable:
        _request_stacks(pid)
    deadline, found, since = time.monotonic() + seconds, dict(before), time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        now = {pid: _file_text(place) for pid, place in readable.items()}
        if now != found:
            found, since = now, time.monotonic()
        elif all(found[pid] != before[pid] for pid in readable) and time.monotonic() - since >= _QUIET_SECONDS:
            break
    return {pid: text[len(before[pid]) :] for pid, text in found.items() if text != before[pid]}


def has_registered(pid: int) -> bool:
    """Return whether the stacks of process `pid` can be read."""
    return bool(file_of(pid))


def file_of(pid: int) -> str:
    """Return the path of the file with the stacks of process `pid`, or "" if it has not registered."""
    folder = f"/proc/{pid}/fd"
    return next((path for path in _paths_in(folder) if _link_target(path) == _LINK), "")


def _paths_in(folder: str) -> Iterator[str]:
    try:
        yield from (f"{folder}/{name}" for name in sorted(os.listdir(folder), key=int))
    except OSError:  # it has ended, or is another user's
        return


def _link_target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _file_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _request_stacks(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGURG)
    except ProcessLookupError:
        return
