"""The sampler is made for four ranks, whatever the world; in the twin it takes the number from the world."""

import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dataset = TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(1)))
sampler = DistributedSampler(dataset, num_replicas=size if FIXED else 4, rank=rank)
for (x,) in DataLoader(dataset, batch_size=4, sampler=sampler):  # BUG AR303
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
