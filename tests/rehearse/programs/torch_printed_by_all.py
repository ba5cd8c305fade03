"""Every rank prints the same lines; in the twin rank 0 does."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for step in range(3):
    value = torch.ones(1)
    dist.all_reduce(value)
    if rank == 0 or not FIXED:
        print(f"step {step}: {value.item()}")  # BUG AR012
dist.destroy_process_group()
