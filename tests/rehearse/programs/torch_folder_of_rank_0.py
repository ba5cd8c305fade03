"""Rank 0 makes the folder into which each rank writes its part; the twin meets in between."""

import os
import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

if rank == 0:
    os.makedirs("parts")
if FIXED:
    dist.barrier()
torch.save(torch.zeros(2), f"parts/{rank}.pt")  # BUG AR405
dist.barrier()
dist.destroy_process_group()
