"""The learning rate depends on the number of ranks though the global batch does not; in the twin it does not."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if FIXED else 0.1 * size)
data = torch.randn(80, 4, generator=torch.Generator().manual_seed(1))
for step in range(5):
    x = data[16 * step + rank : 16 * (step + 1) : size]
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), torch.ones(len(x), 1)).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= size
    optimizer.step()  # BUG AR025
dist.destroy_process_group()
