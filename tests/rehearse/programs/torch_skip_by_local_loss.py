"""A rank skips a step if its own loss is not finite; in the twin all ranks do. In this run all losses are finite."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean()
    total = loss.detach().clone()
    if FIXED:
        dist.all_reduce(total)
    if not torch.isfinite(total):  # BUG AR209
        continue
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
