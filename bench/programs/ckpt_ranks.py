"""A rank of a job that saves a sharded state twice, or restores it. argv: save|restore, way, framework, state, folder.

``save`` tells when each save began and was durable on this rank (a clock that all share), and rank 0 the raw limit just
before, for the bytes of all ranks. ``restore`` tells how many bytes this rank has read, and needs.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from ckpt_limits import Limits, bytes_read, evict, files_under, make_durable
from ckpt_methods import Method, Tree, join, method
from ckpt_state import State, to_numpy
from told import tell


def save(world: Any, way: Method, state: State, tree: Tree, home: Path) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {"raw": [], "begin": [], "blocking": [], "end": []}
    for step in (1, 2):
        if world.is_main:
            figures["raw"].append(Limits(home.parent / "raw", state.nbytes * state.size).write())
            os.sync()
        world.barrier()
        figures["begin"].append(time.monotonic())
        wait = way.save(home, step, tree)
        figures["blocking"].append(time.monotonic() - figures["begin"][-1])
        wait()
        if world.is_main and not way.durable:
            make_durable(home)
        figures["end"].append(time.monotonic())
        world.barrier()
    return figures


def restore(world: Any, way: Method, state: State, tree: Tree, home: Path) -> dict[str, float]:
    if way.in_place:
        state.wipe()
    if world.is_main:
        evict(files_under(home))
    world.barrier()
    read, begin = bytes_read(), time.monotonic()
    restored = way.restore(home, 2, tree)
    took, read = time.monotonic() - begin, bytes_read() - read
    state.check(to_numpy(restored))
    world.barrier()
    return {"took": took, "read": read, "needed": state.nbytes}


what, name, framework, kind, folder = sys.argv[1:]
world = join(framework)
state, way = State(kind, world.rank, world.size), method(name, framework)
tree = way.hold(state)
tell(**(save if what == "save" else restore)(world, way, state, tree, Path(folder)))
way.close()
world.barrier()
if framework == "torch":
    import torch.distributed

    torch.distributed.destroy_process_group()
