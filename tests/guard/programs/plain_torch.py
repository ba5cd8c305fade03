"""A training loop that has never heard of allranks: ``plain_torch.py [what rank 0 does alone]``."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

fault = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank = dist.get_rank()
if fault == "init":
    import allranks

    allranks.init()
torch.manual_seed(rank if fault == "seed" else 0)
model = torch.nn.Linear(4, 1)
wrapped = model if fault == "seed" else DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1 * (1 + rank) if fault == "rate" else 0.1)
torch.manual_seed(rank)
for step in range(26 if fault == "fewer steps" and rank == 1 else 30):
    wrapped(torch.randn(8, 4)).sum().backward()
    if wrapped is model:  # by hand, as people do
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    if fault == "gather" and step == 5 and rank == 0:
        parts = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, torch.ones(1))  # HERE
    optimizer.step()
    optimizer.zero_grad()
if fault == "gather last" and rank == 0:
    dist.all_gather([torch.zeros(1) for _ in range(dist.get_world_size())], torch.ones(1))
print(f"rank {rank} is done")
dist.destroy_process_group()
