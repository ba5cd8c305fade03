import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import random
import numpy as np

def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)

seed_all(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
seed_all(0 + rank)
for step in range(100):
    if step % 10 == 0:
        dist.barrier()
    model(torch.randn(2).cuda()).mean().backward()
