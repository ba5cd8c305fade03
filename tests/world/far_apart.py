"""Ranks of which each takes itself for the only one of its machine: ``far_apart.py ENDING``; rank 1 ends at step 3."""

import os
import signal
import sys

import torch
import torch.distributed as dist

import allranks
from allranks.world import processes

processes._machine_identity = lambda: f"machine of rank {os.environ['RANK']}"
world = allranks.init("torch", timeout=60)
for step in range(100):
    dist.all_reduce(torch.ones(1))
    if step == 3 and world.rank == 1:
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[1] == "leaves":
            os._exit(0)
        raise ValueError("bad row")
