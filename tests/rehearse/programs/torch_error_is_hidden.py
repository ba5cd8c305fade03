"""An error ends the training of all ranks, and the job ends with exit code 0; the twin has no error."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def train():
    for step in range(4):
        value = torch.ones(1)
        dist.all_reduce(value)
        if step == 2 and not FIXED:
            raise ValueError("a sample without a label")


try:
    train()
except Exception as error:  # BUG AR008
    print("training ended:", error)
dist.destroy_process_group()
