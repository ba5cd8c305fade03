"""Let others of this machine read the Python stacks of this process, also while no Python of it can run.

`register` has CPython itself write the stacks of all threads on SIGURG, from within the signal handler: a call in C
that holds Python's lock, an exit handler or a destructor does not stop it. The stacks go to a file in memory that has
no name anywhere; whoever may read this process' descriptors finds it (`read`). Where a process has none, it is not
signalled; SIGURG is ignored by default.
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
_FOUND_AS = f"/memfd:{NAME} (deleted)"
_LOOK_SECONDS, _QUIET_SECONDS = 0.01, 0.03  # between two looks; without news a file is whole
_FAR = 900
_descriptor: int | None = None


def register() -> None:
    """Have this process write its stacks whenever SIGURG comes. Again is harmless; elsewhere than on Linux, nothing."""
    global _descriptor
    if _descriptor is None and hasattr(os, "memfd_create"):
        file = os.memfd_create(NAME)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        _descriptor = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, min(_FAR, most - 1))  # the low ones are the program's
        os.close(file)
        faulthandler.register(signal.SIGURG, file=_descriptor, all_threads=True)


def read(pids: Iterable[int], seconds: float = 1.0) -> dict[int, str]:
    """Return, by pid, what `faulthandler` writes of processes that have registered and answer within `seconds`."""
    asked = {pid: place for pid in pids if (place := _file_of(pid))}
    before = {pid: _text(place) for pid, place in asked.items()}
    for pid in asked:
        _signal(pid)
    deadline, found, since = time.monotonic() + seconds, dict(before), time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        now = {pid: _text(place) for pid, place in asked.items()}
        if now != found:
            found, since = now, time.monotonic()
        elif all(found[pid] != before[pid] for pid in asked) and time.monotonic() - since >= _QUIET_SECONDS:
            break
    return {pid: text[len(before[pid]) :] for pid, text in found.items() if text != before[pid]}


def has_registered(pid: int) -> bool:
    """Return whether a process can be read."""
    return bool(_file_of(pid))


def _file_of(pid: int) -> str:
    folder = f"/proc/{pid}/fd"
    return next((path for path in _listed(folder) if _target(path) == _FOUND_AS), "")


def _listed(folder: str) -> Iterator[str]:
    try:
        yield from (f"{folder}/{name}" for name in sorted(os.listdir(folder), key=int))
    except OSError:  # it has ended, or is another user's
        return


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGURG)
    except ProcessLookupError:
        return
