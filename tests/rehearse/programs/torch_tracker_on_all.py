"""Every rank begins a run; in the twin rank 0 does."""

import sys

import torch.distributed as dist
import wandb

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

if rank == 0 or not FIXED:
    wandb.init(project="p")  # BUG AR103
dist.barrier()
dist.destroy_process_group()
