"""Where a rank's process is: its host, machine and pid, which the ranks give each other at the start."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """``host`` is shown to people; processes of one ``machine`` can see each other's ``pid`` (one kernel, one boot, one
    PID namespace), whatever their hosts are called."""

    host: str
    pid: int
    machine: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def of_this_process(environ: Mapping[str, str]) -> ProcessInfo:
    """Return this process's presence; ALLRANKS_HOST overrules the host's name."""
    return ProcessInfo(environ.get("ALLRANKS_HOST") or socket.gethostname(), os.getpid(), _machine())


def local_rank_of(rank: int, everybody: Sequence[ProcessInfo]) -> int:
    """Return a rank's number among the ranks of its host."""
    return sum(one.host == everybody[rank].host for one in everybody[:rank])


def is_taken(address: str) -> bool:
    """Say whether a process listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True


def _machine() -> str:
    """Return "" where processes cannot be watched this way (not Linux)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except FileNotFoundError:
        return ""
