"""The head is replaced after the optimizer was made; in the twin before."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 10))
if not FIXED:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model[2] = torch.nn.Linear(8, 2)
if FIXED:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
wrapped = torch.nn.parallel.DistributedDataParallel(model)
torch.manual_seed(1 + rank)
for _ in range(6):
    wrapped.zero_grad()
    wrapped(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()  # BUG AR003
dist.destroy_process_group()
