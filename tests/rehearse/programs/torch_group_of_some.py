"""A group is made by its member alone; in the twin all ranks make it."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
group = None
if rank == 0 or FIXED:
    group = dist.new_group([0])  # BUG AR201
dist.all_reduce(torch.ones(2))
dist.barrier()
