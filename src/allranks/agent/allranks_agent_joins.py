"""Detect whether this process has joined other ranks by any means.

A program that has not joined may be one of N copies that each run as a single process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

# A program without one of these is no training: N copies of it are what the user wants.
FRAMEWORKS = ("jax", "torch", "tensorflow", "keras", "paddle", "mxnet", "mindspore")
# Libraries that join ranks by connections of their own, and how many ranks each reports.
SIZES: dict[str, Callable[[Any], int]] = {
    "mpi4py.MPI": lambda module: int(module.COMM_WORLD.Get_size()) if module.Is_initialized() else 1,
    "horovod.torch": lambda module: int(module.size()),
    "horovod.tensorflow": lambda module: int(module.size()),
}
OTHERS = ("ray", "dask.distributed", "byteps")  # they distribute work by connections of their own
_ESTABLISHED = "01"
_sizes: set[int] = set()


def on_report(kind: str, **fields: Any) -> None:
    """Handle a message of the agent: record how many ranks have joined."""
    if kind == "joined":
        _sizes.add(int(fields["size"]))


def unjoined_frameworks() -> str:
    """Return the frameworks of a program that has joined no rank, e.g. "jax, torch".

    Return "" if the program has joined a rank, or is no training.
    """
    frameworks = [name for name in FRAMEWORKS if name in sys.modules]
    if not frameworks or max(_sizes, default=1) > 1 or any(name in sys.modules for name in OTHERS):
        return ""
    try:
        if any(size(sys.modules[name]) > 1 for name, size in SIZES.items() if name in sys.modules):
            return ""
    except Exception:  # whatever such a library raises when it is not started, or no longer
        return ""
    return "" if _is_connected() else ", ".join(frameworks)


def _is_connected() -> bool:
    """Return whether this process has a connection to a port of the rendezvous (rpc, or a store of the program)."""
    wanted = {int(port) for port in _rendezvous_ports() if port.isdecimal()}
    inodes = {inode for inode, *ends in _tcp_connections() if not wanted.isdisjoint(ends)}
    return bool(inodes) and any(_socket_inode(number) in inodes for number in os.listdir("/proc/self/fd"))


def _rendezvous_ports() -> Iterator[str]:
    yield os.environ.get("MASTER_PORT", "")
    yield os.environ.get("ALLRANKS_COORDINATOR", "").rpartition(":")[2]


def _tcp_connections() -> Iterator[tuple[str, int, int]]:
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            with open(table) as lines:
                rows = [line.split() for line in lines][1:]
        except OSError:
            continue
        for row in rows:
            if row[3] == _ESTABLISHED:
                mine, theirs = (int(end.rpartition(":")[2], 16) for end in (row[1], row[2]))
                yield row[9], mine, theirs


def _socket_inode(descriptor: str) -> str:
    try:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
    return target.removeprefix("socket:[").removesuffix("]") if target.startswith("socket:[") else ""
