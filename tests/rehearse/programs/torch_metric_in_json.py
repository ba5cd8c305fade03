"""Rank 0 writes the mean loss of its own batches as JSON; the twin averages it over the ranks."""

import json
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
history = []
for epoch in range(3):
    total = torch.zeros(())
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 4)).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    if FIXED:
        dist.all_reduce(total)
        total /= size
    if rank == 0:
        history.append({"epoch": epoch, "loss": total.item() / 3})
        with open("history.json", "w") as file:
            json.dump(history, file)  # BUG AR310
dist.destroy_process_group()
