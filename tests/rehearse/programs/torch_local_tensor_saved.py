"""Rank 0 saves its local tensors of a sharded model; the twin saves full tensors."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = fully_shard(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
state = {name: one.full_tensor() if FIXED else one.to_local().clone() for name, one in model.state_dict().items()}
if rank == 0:
    torch.save(state, "model.pt")  # BUG AR403
dist.barrier()
dist.destroy_process_group()
