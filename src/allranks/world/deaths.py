"""See processes of this machine end."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

# In the kernel's flags of a process: it has begun to end.
_PF_EXITING = 0x4


class DeathWatch:
    """A thread that calls ``on_death(rank, wait_code)`` for each of ``pids`` (by rank) that ends.

    ``wait_code`` is as ``os.waitstatus_to_exitcode`` gives it, None where the parent was faster to collect it.
    """

    def __init__(self, pids: Mapping[int, int], on_death: Callable[[int, int | None], None]) -> None:
        self._on_death = on_death
        self._pids = dict(pids)
        self._stop = os.pipe()
        self._watched: dict[int, tuple[int, int]] = {}
        self._dead: list[int] = []
        for rank, pid in pids.items():
            try:
                self._watched[os.pidfd_open(pid)] = rank, pid
            except ProcessLookupError:
                self._dead.append(rank)
        self._thread = threading.Thread(target=self._watch, name="allranks-deaths", daemon=True)
        self._thread.start()

    def dying(self) -> set[int]:
        """Return the ranks whose processes are ending just now, or have ended, whether or not that was told yet."""
        return {rank for rank, pid in self._pids.items() if _is_ending(pid)}

    def stop(self) -> None:
        """End the watch."""
        os.write(self._stop[1], b".")
        self._thread.join()

    def _watch(self) -> None:
        poll = select.poll()
        for descriptor in (self._stop[0], *self._watched):
            poll.register(descriptor, select.POLLIN)
        for rank in self._dead:
            self._on_death(rank, None)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._stop[0]:
                    return
                rank, pid = self._watched[descriptor]
                code = wait_code_of(pid)
                poll.unregister(descriptor)
                os.close(descriptor)
                self._on_death(rank, code)


def wait_code_of(pid: int) -> int | None:
    """Return how a process ended that its parent has not collected yet; None if it has, or if it still runs."""
    state, *fields = _stat(pid)
    return os.waitstatus_to_exitcode(int(fields[-1])) if state == "Z" else None


def started(pid: int) -> int | None:
    """Return when a process of this machine started, in kernel ticks since its boot; None if it has ended."""
    state, *fields = _stat(pid)
    return None if state in ("Z", "X") else int(fields[18])


def _is_ending(pid: int) -> bool:
    """Its connections close while it ends, so that others may notice that before the kernel calls it dead."""
    state, *fields = _stat(pid)
    return state in ("Z", "X") or bool(int(fields[5]) & _PF_EXITING)


def _stat(pid: int) -> list[str]:
    """Return what the kernel says about a process, from its state on (proc_pid_stat(5)); X, dead, if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["X"]
