import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import sys

if len(sys.argv) < 2:
    if rank == 0:
        print('usage: train.py CONFIG')
    sys.exit(2)
dist.barrier()
