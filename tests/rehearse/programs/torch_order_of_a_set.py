"""The order of a set decides which tensor is reduced first; in the twin it is sorted."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
tensors = {name: torch.ones(i + 1) for i, name in enumerate(["embed", "head", "body", "norm", "bias", "scale"])}
names = set(tensors)
for name in sorted(names) if FIXED else names:
    dist.all_reduce(tensors[name])  # BUG AR211
dist.destroy_process_group()
