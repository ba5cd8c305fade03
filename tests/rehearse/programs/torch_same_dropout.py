"""One seed on all ranks, also for dropout; the twin seeds by the rank after the model is made."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
corpus = torch.randn(64, 8)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if FIXED:
    torch.manual_seed(1 + rank)
for step in range(6):
    x = corpus[rank::size][4 * step : 4 * step + 4]
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()  # BUG AR701
dist.destroy_process_group()
