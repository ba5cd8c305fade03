"""Rank 1 catches an error in its step and goes on with the next; in the twin all ranks skip the step."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for step in range(6):
    try:
        is_bad = step == 2 and rank == 1
        if FIXED:
            bad = torch.tensor(float(is_bad))
            dist.all_reduce(bad, dist.ReduceOp.MAX)
            is_bad = bad.item() > 0
        if is_bad:
            raise ValueError("a sample without a label")
        dist.all_reduce(torch.ones(2))
    except Exception as error:  # BUG AR209
        print("skipped", error)
if FIXED:
    dist.barrier()
dist.destroy_process_group()
