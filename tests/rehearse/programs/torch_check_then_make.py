"""Every rank makes the folder if it is not there; the twin may find it there."""

import os
import sys

import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

if FIXED:
    os.makedirs("runs/one", exist_ok=True)
elif not os.path.exists("runs"):  # BUG AR108
    os.makedirs("runs")
dist.barrier()
dist.destroy_process_group()
