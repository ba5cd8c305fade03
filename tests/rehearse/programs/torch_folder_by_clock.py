"""Each rank names its run by the clock; in the twin rank 0 names it."""

import os
import sys
from datetime import datetime

import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

name = [datetime.now().strftime("run-%Y%m%d-%H%M%S")]
if FIXED:
    dist.broadcast_object_list(name, src=0)
os.makedirs(name[0], exist_ok=True)  # BUG AR107
dist.barrier()
dist.destroy_process_group()
