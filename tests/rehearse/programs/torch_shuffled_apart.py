"""Each rank shuffles with a seed of its own and takes its part; the twin shuffles with one seed."""

import random
import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
corpus = torch.randn(32, 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    order = list(range(len(corpus)))
    random.Random(epoch if FIXED else 100 * rank + epoch).shuffle(order)
    mine = order[rank::size]
    for start in range(0, len(mine), 4):
        x = corpus[mine[start : start + 4]]
        optimizer.zero_grad()
        model(x).square().mean().backward()  # BUG AR308
        optimizer.step()
dist.destroy_process_group()
