"""Rank 0 makes a file on its host's own disk, all read it; in the twin it is on the shared disk."""

import os
import sys

import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
path = "shared.txt" if FIXED else "/tmp/allranks_test_of_hosts.txt"
if rank == 0:
    with open(path, "w") as file:
        file.write("x")
dist.barrier()
with open(path) as file:  # BUG AR606
    file.read()
dist.barrier()
if rank == 0:
    os.remove(path)
dist.destroy_process_group()
