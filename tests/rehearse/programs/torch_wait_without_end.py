"""A rank waits for a file of rank 0, whose preparation has failed; in the twin it waits in a barrier."""

import os
import sys
import time

import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
if rank == 0:
    try:
        int("no number")
        open("ready", "w").close()
    except ValueError as error:
        print("preparation failed:", error)
else:
    while not FIXED and not os.path.exists("ready"):  # BUG AR013
        time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
