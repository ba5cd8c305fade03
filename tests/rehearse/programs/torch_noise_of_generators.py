"""Generators of numpy and of Python with one seed on all ranks; the twin adds the rank."""

import random
import sys

import numpy as np
import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
seed = rank if FIXED else 0
noise, crops = np.random.default_rng(seed), random.Random(seed)
for _ in range(6):
    rows = torch.randn(4, 8)
    rows = torch.stack([row[at : at + 4] for row in rows for at in [crops.randint(0, 4)]])  # BUG AR701
    rows = rows + torch.from_numpy(noise.normal(size=(4, 4)).astype("f4"))  # BUG AR701
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
