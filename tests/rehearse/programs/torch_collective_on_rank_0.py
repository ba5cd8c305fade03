"""Rank 0 reduces alone; in the twin all ranks do."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
value = torch.ones(2)
if rank == 0 or FIXED:
    dist.all_reduce(value)  # BUG AR201
dist.barrier()
dist.destroy_process_group()
