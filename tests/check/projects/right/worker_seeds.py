import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import random
import numpy as np

def seed_worker(worker):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)

generator = torch.Generator()
generator.manual_seed(rank)
sampler = DistributedSampler(rows)
loader = DataLoader(rows, 8, sampler=sampler, num_workers=4, worker_init_fn=seed_worker, generator=generator)
model = DDP(torch.nn.Linear(2, 2).cuda())
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in loader:
        model(batch).mean().backward()
