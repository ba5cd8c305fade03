"""A DDP loop whose step takes some 20 ms; leaves its median step and the time of its first one for the bench."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from bench.programs.told import since_begin, tell

STEPS, WIDTH = int(sys.argv[1]), 512

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64 * STEPS * dist.get_world_size(), WIDTH))
loader = DataLoader(data, 64, sampler=DistributedSampler(data))
layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(6)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
took, first = [], 0.0
for (x,) in loader:
    begin = time.perf_counter()
    first = first or since_begin()
    optimizer.zero_grad()
    for _ in range(4):
        model(x).square().mean().backward()
    optimizer.step()
    took.append(time.perf_counter() - begin)
if dist.get_rank() == 0:
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), f"{folder}/model.pt")
dist.barrier()
tell(step=statistics.median(took[5:]), first=first)
dist.destroy_process_group()
os._exit(0)  # torch may wait for itself at the end of a process
