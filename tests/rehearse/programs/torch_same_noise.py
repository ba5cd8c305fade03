"""Each rank adds the same noise to its own rows; in the twin the seed depends on the rank."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
corpus = torch.randn(64, 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if FIXED:
    torch.manual_seed(1 + rank)
for step in range(6):
    x = corpus[rank::size][4 * step : 4 * step + 4]
    noise = torch.randn_like(x)  # BUG AR701
    optimizer.zero_grad()
    model(x + noise).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
