import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

import wandb
mode = 'online'
if rank != 0:
    mode = 'disabled'
wandb.init(mode=mode)
wandb.log({})
