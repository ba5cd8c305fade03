"""Refuse a number of ranks that this host cannot hold, before anything starts."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource

from allranks.launch.capacity import LEAST_MEMORY_OF_A_RANK, HostCapacity, least_memory, shortage
from allranks.launch.job import Script, Target
from allranks.program import packages_at_start

# Below it only the descriptors are counted: fewer processes fail by themselves, one by one, with the kernel's reason.
FEW = 32


def must_fit(
    p: argparse.ArgumentParser,
    ranks: int,
    target: Target | None = None,
    *,
    with_logs: bool = False,
    zygote: bool = True,
) -> None:
    """End the process with exit code 2 if this host cannot hold so many ranks.

    ``target``: what each of them runs, if that is known. ``zygote``: they are forked.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    descriptors = float("inf") if files == resource.RLIM_INFINITY else float(files)
    host = HostCapacity(descriptors, len(os.listdir("/proc/self/fd")))
    if ranks > FEW:
        from allranks.doctor.system import read_limits, read_memory

        limits = read_limits()
        processes, name = limits.processes
        host = HostCapacity(descriptors, limits.open, processes, name, limits.running, read_memory().usable)
    memory = LEAST_MEMORY_OF_A_RANK
    if ranks > FEW and isinstance(target, Script):
        with contextlib.suppress(OSError, ValueError), open(target.path, encoding="utf-8") as source:
            memory = least_memory(packages_at_start(source.read()), is_forked=zygote)
    if short := shortage(ranks, host, with_logs=with_logs, rank_memory=memory):
        p.error(f"-n {ranks}: {short}")
