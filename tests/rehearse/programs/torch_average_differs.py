"""Rank 0 alone updates the average of the weights that all ranks evaluate; in the twin all update theirs."""

import copy
import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
average = copy.deepcopy(model.module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()
    if rank == 0 or FIXED:
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.5)
with torch.no_grad():
    total = average.eval()(torch.randn(4, 4)).sum()  # BUG AR004
dist.all_reduce(total)
dist.destroy_process_group()
