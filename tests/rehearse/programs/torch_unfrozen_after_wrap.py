"""A layer is trained that was frozen when the model was wrapped; the twin wraps the model again."""

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
trunk = torch.nn.Linear(4, 4)
trunk.requires_grad_(False)
model = torch.nn.Sequential(trunk, torch.nn.Linear(4, 1))
wrapped = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(8):
    if number == 3:
        trunk.requires_grad_(True)
        if FIXED:
            wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer.zero_grad()
    wrapped(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()  # BUG AR705
dist.destroy_process_group()
