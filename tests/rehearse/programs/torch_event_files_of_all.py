"""Every rank makes an event file in one folder; in the twin rank 0 does."""

import os
import sys

import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
os.makedirs("log", exist_ok=True)
if rank == 0 or not FIXED:
    with open(f"log/events.out.tfevents.{os.getpid()}", "wb") as file:  # BUG AR103
        file.write(b"")
dist.barrier()
dist.destroy_process_group()
