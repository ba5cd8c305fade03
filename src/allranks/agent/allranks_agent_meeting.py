"""Whether this process has met other ranks, by any means that can be seen: a program that has not may be one of many
copies that each believe to be alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

# Without one of these in it, a program is no training: N copies of it are what was asked for.
FRAMEWORKS = ("jax", "torch", "tensorflow", "keras", "paddle", "mxnet", "mindspore")
# What meets by ways of its own, and how many ranks it says there are.
SIZES: dict[str, Callable[[Any], int]] = {
    "mpi4py.MPI": lambda module: int(module.COMM_WORLD.Get_size()) if module.Is_initialized() else 1,
    "horovod.torch": lambda module: int(module.size()),
    "horovod.tensorflow": lambda module: int(module.size()),
}
OTHERS = ("ray", "dask.distributed", "byteps")  # they hand on work by connections of their own
_ESTABLISHED = "01"
_sizes: set[int] = set()


def heard(kind: str, **fields: Any) -> None:
    """Take note of what the agent tells the launcher."""
    if kind == "joined":
        _sizes.add(int(fields["size"]))


def unmet() -> str:
    """Return the frameworks of a program that has met nobody, "jax, torch"; "" if it has, or is no training."""
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
    """Say whether this process holds a connection to one of the ports at which ranks meet (rpc, a store of its own)."""
    wanted = {int(port) for port in _ports() if port.isdecimal()}
    inodes = {inode for inode, *ends in _connections() if not wanted.isdisjoint(ends)}
    return bool(inodes) and any(_inode(number) in inodes for number in os.listdir("/proc/self/fd"))


def _ports() -> Iterator[str]:
    yield os.environ.get("MASTER_PORT", "")
    yield os.environ.get("ALLRANKS_COORDINATOR", "").rpartition(":")[2]


def _connections() -> Iterator[tuple[str, int, int]]:
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


def _inode(descriptor: str) -> str:
    try:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
    return target.removeprefix("socket:[").removesuffix("]") if target.startswith("socket:[") else ""
