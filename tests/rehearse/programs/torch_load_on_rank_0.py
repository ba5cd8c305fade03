"""Rank 0 loads the checkpoint into the wrapped model; in the twin all ranks do."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
if rank == 0:
    torch.save({name: value + 1 for name, value in model.state_dict().items()}, "start.pt")
dist.barrier()
if rank == 0 or FIXED:
    model.load_state_dict(torch.load("start.pt"))  # BUG AR501
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
