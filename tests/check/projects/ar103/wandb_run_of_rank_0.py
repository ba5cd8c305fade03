import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

import wandb
if rank == 0:
    wandb.init()
if wandb.run is not None:
    wandb.log({})
if wandb.run:
    torch.save({}, 'best.pt')
