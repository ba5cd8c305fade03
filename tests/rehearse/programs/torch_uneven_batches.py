"""Rank 0 has a batch more in each epoch; in the twin all have as many."""

import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

data = TensorDataset(torch.randn(16 if FIXED or rank else 20, 4) + rank)
for _ in DataLoader(data, 4):  # BUG AR304
    pass
dist.barrier()
dist.destroy_process_group()
