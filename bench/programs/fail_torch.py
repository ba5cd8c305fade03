"""A torch DDP job that trains, until something happens to rank 1. argv: what happens."""

import sys

import torch
import torch.distributed as dist
from told import suffer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
for number in range(100_000):
    model(torch.ones(4, 8)).mean().backward()
    if number == 20 and dist.get_rank() == 1:
        suffer(sys.argv[1])
