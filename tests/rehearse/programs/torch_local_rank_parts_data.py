"""The data is parted by the local rank; in the twin by the rank."""

import os
import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
part = rank if FIXED else int(os.environ["LOCAL_RANK"])
torch.manual_seed(0)
corpus = torch.randn(64, 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x = corpus[part::size][4 * step : 4 * step + 4]
    optimizer.zero_grad()
    model(x).square().mean().backward()  # BUG AR306
    optimizer.step()
dist.destroy_process_group()
