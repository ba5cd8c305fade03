"""The first rank of each host writes the shared checkpoint; in the twin rank 0 does."""

import os
import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
if (rank if FIXED else int(os.environ["LOCAL_RANK"])) == 0:
    torch.save(torch.zeros(2), "model.pt")  # BUG AR105
dist.barrier()
dist.destroy_process_group()
