"""Ranks reduce tensors of other lengths; in the twin they are padded."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
rows = torch.ones(3 if FIXED else 3 + rank)
dist.all_reduce(rows)  # BUG AR211
dist.destroy_process_group()
