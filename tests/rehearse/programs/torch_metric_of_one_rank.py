"""Rank 0 logs the loss of its own batches; the twin reduces it."""

import sys

import torch
import torch.distributed as dist
import wandb

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)
model = torch.nn.Linear(4, 1)
for _ in range(4):
    loss = model(torch.randn(4, 4)).square().mean()
    if FIXED:
        dist.all_reduce(loss)
    value = loss.item()
    if rank == 0:
        wandb.log({"loss": value})  # BUG AR310
dist.barrier()
dist.destroy_process_group()
