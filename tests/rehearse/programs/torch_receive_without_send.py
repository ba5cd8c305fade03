"""A rank receives what nobody sends; in the twin rank 0 sends it."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
value = torch.ones(2)
if rank == 1:
    dist.recv(value, 0)  # BUG AR201
elif FIXED:
    dist.send(value, 1)
dist.barrier()
dist.destroy_process_group()
