"""Refuse a number of ranks that this host cannot hold, before anything starts."""

from __future__ import annotations

import argparse
import os
import resource

from allranks.launch.capacity import HostCapacity, shortage

# Below it only the descriptors are counted: fewer processes fail by themselves, one by one, with the kernel's reason.
FEW = 32


def must_fit(p: argparse.ArgumentParser, ranks: int, *, with_logs: bool = False) -> None:
    """End the process with exit code 2 if this host cannot hold so many ranks."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    descriptors = float("inf") if files == resource.RLIM_INFINITY else float(files)
    host = HostCapacity(descriptors, len(os.listdir("/proc/self/fd")))
    if ranks > FEW:
        from allranks.doctor.system import read_limits, read_memory

        limits = read_limits()
        processes, name = limits.processes
        host = HostCapacity(descriptors, limits.open, processes, name, limits.running, read_memory().usable)
    if short := shortage(ranks, host, with_logs=with_logs):
        p.error(f"-n {ranks}: {short}")
