"""The sampler is never told the epoch; in the twin it is."""

import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data)
loader = DataLoader(data, 4, sampler=sampler)
for epoch in range(3):
    if FIXED:
        sampler.set_epoch(epoch)
    for x, y in loader:  # BUG AR302
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
