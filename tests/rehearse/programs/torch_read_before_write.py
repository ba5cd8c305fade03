"""Rank 0 writes the vocabulary, the others read it; the twin meets in between."""

import sys

import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
if rank == 0:
    with open("vocabulary.json", "w") as file:
        file.write("{}")
if FIXED:
    dist.barrier()
with open("vocabulary.json") as file:  # BUG AR405
    file.read()
dist.destroy_process_group()
