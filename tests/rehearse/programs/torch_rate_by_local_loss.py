"""Each rank's scheduler gets the loss of its own batches; the twin reduces it."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=50)
torch.manual_seed(1 + rank)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean()
    loss.backward()
    optimizer.step()
    value = loss.detach().clone()
    if FIXED:
        dist.all_reduce(value)
    scheduler.step(value.item())  # BUG AR310
dist.destroy_process_group()
