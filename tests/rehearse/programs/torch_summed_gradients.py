"""Gradients of a mean loss are summed over the ranks; in the twin they are divided by the number of ranks."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
for step in range(5):
    x = data[8 * step + rank : 8 * (step + 1) : size]
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), torch.ones(len(x), 1)).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # BUG AR024
        if FIXED:
            parameter.grad /= size
    optimizer.step()
dist.destroy_process_group()
