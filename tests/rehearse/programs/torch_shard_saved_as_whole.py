"""Rank 0 saves the state of a fully sharded model as it is; the twin gathers it first."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
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
full = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=full) if FIXED else model.state_dict()
if rank == 0:
    torch.save(state, "model.pt")  # BUG AR403
dist.barrier()
dist.destroy_process_group()
