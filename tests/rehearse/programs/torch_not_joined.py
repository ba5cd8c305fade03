"""Each rank trains in a world of one, and takes itself for rank 0; the twin joins the ranks first."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
rank, size = 0, 1
if FIXED:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
if FIXED:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()  # BUG AR601
if rank == 0:
    torch.save(model.state_dict(), "model.pt")
