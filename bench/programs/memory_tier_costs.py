"""What a step in memory costs, beside one on disk. argv: a folder, megabytes of state, how many saves of each kind."""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from told import tell

os.environ["ALLRANKS_HOST"] = "ab"[int(os.environ["ALLRANKS_RANK"])]

import allranks

FOLDER, MEGABYTES, TIMES = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
LEAVES = 16
EVERY = {"disk": {"every": 1}, "memory": {"memory_every": 1}}


def timed(took: dict[str, list[float]], name: str, began: float) -> None:
    took.setdefault(name, []).append(time.perf_counter() - began)


def main() -> None:
    world = allranks.init()
    state = {f"leaf{i}": np.full(MEGABYTES * 1_000_000 // LEAVES, i, np.uint8) for i in range(LEAVES)}
    template = {name: np.zeros_like(leaf) for name, leaf in state.items()}
    ckpts = {where: allranks.Checkpointer(FOLDER / where, world, keep_last=1, **how) for where, how in EVERY.items()}
    took: dict[str, list[float]] = {}
    for step in range(1, TIMES + 2):
        if step == 2:
            took.clear()  # the first saves allocate their memory
        for where, ckpt in ckpts.items():
            world.barrier()
            began = time.perf_counter()
            ckpt.maybe_save(step, state)
            timed(took, f"{where} blocked", began)
            ckpt.wait()
            timed(took, f"{where} complete", began)
    part = next(iter(state.values()))
    for _ in range(TIMES):
        for where, ckpt in ckpts.items():
            world.barrier()
            began = time.perf_counter()
            found = ckpt.restore(template)
            timed(took, f"{where} restored", began)
            assert found is not None
            assert found.source == ("memory" if where == "memory" else "storage")
        began = time.perf_counter()
        for number in range(LEAVES // 2):
            np.copyto(template[f"leaf{number}"], part)
        timed(took, "copy", began)
    for ckpt in ckpts.values():
        ckpt.close()
    tell(**{name: statistics.median(seconds) for name, seconds in took.items()})


main()
