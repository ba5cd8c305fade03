"""Each rank seeds by its process' number; in the twin by a number of the configuration and its rank."""

import os
import random
import sys

import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
random.seed(17 + rank if FIXED else os.getpid())  # BUG AR702
dist.barrier()
dist.destroy_process_group()
