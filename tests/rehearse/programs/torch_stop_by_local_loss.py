"""Each rank ends its training by the loss of its own batches; the twin reduces it. In this run no rank ends early."""

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
best, bad = float("inf"), 0
for _epoch in range(3):
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 4)).square().mean()
        loss.backward()
        optimizer.step()
    value = loss.detach().clone()
    if FIXED:
        dist.all_reduce(value)
    value = value.item()
    if value < best:
        best, bad = value, 0
    else:
        bad += 1
    if bad >= 5:  # BUG AR209
        break
dist.destroy_process_group()
