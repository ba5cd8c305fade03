"""Every rank saves to one path; the twin saves on rank 0."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = torch.nn.Linear(2, 2)
if rank == 0 or not FIXED:
    torch.save(model.state_dict(), "model.pt")  # BUG AR101
dist.barrier()
dist.destroy_process_group()
