"""A training loop that draws its own batches, with one seed on all ranks; the twin adds the rank."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
corpus = torch.randn(1000)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1337 + rank if FIXED else 1337)
for _ in range(6):
    starts = torch.randint(len(corpus) - 8, (4,))
    x = torch.stack([corpus[i : i + 8] for i in starts])
    optimizer.zero_grad()
    model(x).square().mean().backward()  # BUG AR301
    optimizer.step()
dist.destroy_process_group()
