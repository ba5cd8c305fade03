"""Each rank shuffles all of the data; the twin has a DistributedSampler."""

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
torch.manual_seed(rank)
loader = DataLoader(data, 4, sampler=DistributedSampler(data)) if FIXED else DataLoader(data, 4, shuffle=True)
for x, y in loader:  # BUG AR301
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
