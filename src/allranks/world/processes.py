"""Identify the processes of the ranks (host, machine, pid), and watch for the exit of ranks on this machine."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from allranks.process import is_ending, wait_code_of


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """The process of a rank. ``host`` is shown to people.

    Processes with the same ``machine`` (one kernel, one boot, one PID namespace) can see each other's ``pid``, even if
    their host names differ.
    """

    host: str
    pid: int
    machine: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def of_this_process(environ: Mapping[str, str]) -> ProcessInfo:
    """Return the ProcessInfo of this process. ALLRANKS_HOST overrides the host name."""
    return ProcessInfo(environ.get("ALLRANKS_HOST") or socket.gethostname(), os.getpid(), _machine_identity())


def local_rank_of(rank: int, everybody: Sequence[ProcessInfo]) -> int:
    """Return a rank's number among the ranks of its host."""
    return sum(one.host == everybody[rank].host for one in everybody[:rank])


def addresses_of_this_host(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses at which other hosts may reach this host, the likeliest first. Sends nothing."""
    coordinators = [environ.get(name, "").rpartition(":")[0] for name in ("JAX_COORDINATOR_ADDRESS",)]
    found = []
    for target in (environ.get("MASTER_ADDR", ""), *coordinators, "192.0.2.1"):  # the last one: the default route
        with contextlib.suppress(OSError):
            family, kind, protocol, _, address = socket.getaddrinfo(target or None, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                found.append(str(probe.getsockname()[0]))
    return tuple(dict.fromkeys([*found, socket.gethostname()]))


def is_of_this_host(address: str) -> bool:
    """Return whether this host has the IP address of ``host:port``."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def is_taken(address: str) -> bool:
    """Return whether a process listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True


def _machine_identity() -> str:
    """Return a name that identifies this machine, or "" if processes cannot be watched here (not Linux)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except FileNotFoundError:
        return ""


class ExitWatch:
    """Watch processes from a thread, and call ``on_death(rank, wait_code)`` for each process that ends.

    ``pids`` has the process id of each rank. ``wait_code`` is as ``os.waitstatus_to_exitcode`` gives it, or None if the
    parent collected it first.
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
        self._thread = threading.Thread(target=self._watch_processes, name="allranks-deaths", daemon=True)
        self._thread.start()

    def dying(self) -> set[int]:
        """Return the ranks whose processes are exiting or have ended, whether or not that was reported yet."""
        return {rank for rank, pid in self._pids.items() if is_ending(pid)}

    def stop(self) -> None:
        """Stop watching, and wait until the watching thread has ended."""
        os.write(self._stop[1], b".")
        self._thread.join()

    def _watch_processes(self) -> None:
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
