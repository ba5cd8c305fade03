"""A rank of a training that saves every third step and is told to leave: ``preempted.py FOLDER MOMENT``."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

import allranks
from allranks.storage import LocalStorage
from allranks.storage.base import BlockSource

folder, moment = sys.argv[1:]
world = allranks.init("torch")


def told() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class Disk(LocalStorage):
    def write(self, path: str, source: BlockSource) -> None:
        if moment == "in the write of a save" and world.rank == 1 and path.startswith("checkpoint-6/"):
            told()
        super().write(path, source)


state = {"weights": np.zeros(1000, np.float32)}
ckpt = allranks.Checkpointer(Disk(folder), world, every=3)
for step in range(1, 10_000):
    if step == 7 and moment == "before a meeting" and world.rank == 2:
        told()
    if step == 7 and moment == "on all ranks":
        told()
    world.barrier("step")
    state["weights"] += 1
    ckpt.maybe_save(step, state)
    if step == 6 and moment == "right after a save" and world.rank == 0:
        told()
raise AssertionError("nobody left")
