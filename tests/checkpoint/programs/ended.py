"""A rank whose loop ends by an exception, right after SIGTERM came: ``ended.py FOLDER HOW``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from typing import Any, cast

import numpy as np

import allranks
from allranks.storage import LocalStorage
from allranks.storage.base import BlockSource

folder, how = sys.argv[1:]
world = allranks.init("torch")


class Disk(LocalStorage):
    def write(self, path: str, source: BlockSource) -> None:
        if "save fails" in how and "checkpoint" in path:
            raise OSError("disk full")
        super().write(path, source)


def train(ckpt: Any) -> None:
    state = {"weights": np.zeros(1000, np.float32)}
    for step in range(1, 10_000):
        world.barrier("step")
        state["weights"] += 1
        ckpt.maybe_save(step, state)
        if step == 5 + ("different steps" in how) * world.rank:
            end()


def end() -> None:
    if "no SIGTERM" not in how:
        os.kill(os.getpid(), signal.SIGTERM)
    if "within a step" in how:
        raise BrokenPipeError("a process that the step needs")
    ours, workers = multiprocessing.Pipe()
    workers.close()
    ours.recv()


if how.startswith("stopped"):
    if "with a" in how:
        allranks.Checkpointer(folder, world)
    told = world.all_gather(os.getpid())
    if not world.is_main:
        os.kill(cast(int, told[0]), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1000)
elif how.startswith("with"):
    with allranks.Checkpointer(Disk(folder), world) as ckpt:
        train(ckpt)
else:
    train(allranks.Checkpointer(Disk(folder), world))
