"""The last, incomplete window of accumulated gradients is never reduced; the twin reduces it."""

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
batches = [torch.randn(4, 4) for _ in range(6)]
for _ in range(3):
    for number, x in enumerate(batches, 1):
        if number % 4 == 0 or (FIXED and number == len(batches)):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        else:
            with model.no_sync():
                model(x).square().mean().backward()
    if not FIXED:
        optimizer.step()  # BUG AR705
        optimizer.zero_grad()
dist.destroy_process_group()
