"""The model is not wrapped, and nobody reduces its gradients; the twin is DDP."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
if FIXED:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(5):
    x = torch.randn(4, 4)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()  # BUG AR705
dist.barrier()
dist.destroy_process_group()
