"""Rank 1 leaves the loop by its own loss; in the twin all decide together."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for step in range(6):
    loss = torch.tensor(1.0 if rank == 0 or step < 3 else 0.0)
    if FIXED:
        dist.all_reduce(loss, dist.ReduceOp.MIN)
    if loss.item() < 0.5:
        break
    dist.all_reduce(torch.ones(2))  # BUG AR209 or AR211
dist.destroy_process_group()
