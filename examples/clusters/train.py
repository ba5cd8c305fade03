"""A job that saves, and goes on at the saved step after a preemption: what the engines of this folder start."""

import sys
import time

import numpy as np

import allranks

steps, folder = int(sys.argv[1]), sys.argv[2]
world = allranks.init()
state = {"weights": np.zeros(8)}
with allranks.Checkpointer(folder, world, every=100) as ckpt:
    state, step = ckpt.restore(like=state) or (state, 0)
    while step < steps:
        state["weights"] += 1  # your step of training
        time.sleep(0.1)
        step += 1
        ckpt.maybe_save(step, state)
allranks.print(f"step {step}, {world.size} ranks")
