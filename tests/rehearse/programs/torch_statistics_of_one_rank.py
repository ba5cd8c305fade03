"""Rank 0 saves the running statistics of its own batches; the twin averages them first."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = torch.nn.parallel.DistributedDataParallel(inner, broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(5):
    optimizer.zero_grad()
    (model(torch.randn(4, 4)) - 1).square().mean().backward()
    optimizer.step()
if FIXED:
    for buffer in inner.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= size
if rank == 0:
    torch.save(inner.state_dict(), "model.pt")  # BUG AR010
dist.barrier()
dist.destroy_process_group()
