"""Decide whether this host can hold the ranks of a job, before the first of them starts. Does no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Descriptors of the launcher: two pipes for each rank, one log file with --log-dir, and its own.
PIPES_OF_A_RANK, LAUNCHER_DESCRIPTORS = 2, 32
# Measured, of a rank that has imported the package: its private memory if it is forked from a process that had
# imported it, and with an interpreter of its own. No package: a rank that does nothing.
_LEAST_MEMORY = {
    "": (5_000_000, 7_000_000),
    "numpy": (8_000_000, 14_000_000),
    "jax": (13_000_000, 78_000_000),
    "torch": (10_000_000, 148_000_000),
}
LEAST_MEMORY_OF_A_RANK = _LEAST_MEMORY[""][0]


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


def least_memory(packages: Iterable[str], *, is_forked: bool) -> int:
    """Return the bytes that a rank needs at least whose program imports these packages, before it does anything."""
    return max(_LEAST_MEMORY[name][not is_forked] for name in ("", *packages) if name in _LEAST_MEMORY)


def shortage(
    ranks: int, host: HostCapacity, *, with_logs: bool = False, rank_memory: int = LEAST_MEMORY_OF_A_RANK
) -> str:
    """Return why so many ranks cannot start on this host, with the arithmetic, and how many can; "" if they can.

    ``rank_memory``: the bytes that a rank needs at least.
    """
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
    least = ranks * rank_memory / 1e9
    memory = (
        f"memory: {ranks:,} x {rank_memory / 1e6:.0f} MB = {least:,.1f} GB needed at least, "
        f"{host.memory / 1e9:,.1f} GB available"
    )
    limits = [
        (free_files / each, files),
        (free_processes, processes),
        (host.memory / rank_memory, memory),
    ]
    reasons = [text for most, text in limits if most < ranks]
    if not reasons:
        return ""
    most = max(0, int(min(most for most, _ in limits)))
    return f"{ranks:,} ranks cannot start on this host, at most {most:,} can: {'; '.join(reasons)}"
