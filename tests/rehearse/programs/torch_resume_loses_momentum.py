"""A resumed run has the weights and a fresh optimizer; the twin restores both."""

import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, 4, sampler=sampler)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
done = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt")  # BUG AR006
    done = saved["step"]
    model.load_state_dict(saved["model"])
    if FIXED:
        optimizer.load_state_dict(saved["optimizer"])
dist.barrier()
for number, (x, y) in enumerate(loader):
    if number < done:
        continue
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
    if number % 4 == 3:
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": number + 1}
            torch.save(state, "next.pt")
            os.replace("next.pt", "last.pt")
        dist.barrier()
dist.destroy_process_group()
