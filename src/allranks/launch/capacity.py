"""Decide whether this host can hold the ranks of a job, before the first of them starts. Does no I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Descriptors of the launcher: two pipes for each rank, one log file with --log-dir, and its own.
PIPES_OF_A_RANK, LAUNCHER_DESCRIPTORS = 2, 32
# Measured: a rank that does nothing has 5.6 MB of its own if it is forked, 7.8 MB with an interpreter of its own.
LEAST_MEMORY_OF_A_RANK = 5_000_000


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """What this host can still give. ``inf`` means no limit.

    - ``descriptors``: the hard limit of open files of this process. ``open``: how many are open now.
    - ``processes``: the lowest limit of processes; ``processes_limit`` is its name. ``running`` is what counts against
      it.
    - ``memory``: the available bytes, also below the limit of a container.
    """

    descriptors: float = math.inf
    open: int = 0
    processes: float = math.inf
    processes_limit: str = ""
    running: int = 0
    memory: float = math.inf


def needed_descriptors(ranks: int, *, with_logs: bool) -> int:
    """Return how many descriptors the launcher of so many ranks opens."""
    return LAUNCHER_DESCRIPTORS + ranks * (PIPES_OF_A_RANK + with_logs)


def shortage(ranks: int, host: HostCapacity, *, with_logs: bool = False) -> str:
    """Return why so many ranks cannot start on this host, with the arithmetic, and how many can; "" if they can."""
    each = PIPES_OF_A_RANK + with_logs
    free_files = host.descriptors - host.open - LAUNCHER_DESCRIPTORS
    free_processes = host.processes - host.running
    files = (
        f"open files: {ranks:,} x {each} + {LAUNCHER_DESCRIPTORS} needed, {host.descriptors:,.0f} allowed "
        f"(ulimit -Hn), {host.open} in use"
    )
    processes = (
        f"processes: {ranks:,} needed at least, {host.processes:,.0f} allowed ({host.processes_limit}), "
        f"{host.running:,} in use"
    )
    least = ranks * LEAST_MEMORY_OF_A_RANK / 1e9
    memory = (
        f"memory: {ranks:,} x {LEAST_MEMORY_OF_A_RANK / 1e6:.0f} MB = {least:,.1f} GB needed at least, "
        f"{host.memory / 1e9:,.1f} GB available"
    )
    limits = [
        (free_files / each, files),
        (free_processes, processes),
        (host.memory / LEAST_MEMORY_OF_A_RANK, memory),
    ]
    reasons = [text for most, text in limits if most < ranks]
    if not reasons:
        return ""
    most = max(0, int(min(most for most, _ in limits)))
    return f"{ranks:,} ranks cannot start on this host, at most {most:,} can: {'; '.join(reasons)}"
