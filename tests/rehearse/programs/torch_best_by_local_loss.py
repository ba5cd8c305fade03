"""Rank 0 saves the best model by the loss of its own batches; the twin reduces it."""

import os
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
best = float("inf")
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean()
    loss.backward()
    optimizer.step()
    value = loss.detach().clone()
    if FIXED:
        dist.all_reduce(value)
    if value.item() < best:  # BUG AR310
        best = value.item()
        if rank == 0:
            torch.save(model.module.state_dict(), "next.pt")
            os.replace("next.pt", "best.pt")
dist.destroy_process_group()
