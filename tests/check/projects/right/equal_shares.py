import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

rows = load()
each = len(rows) // world
mine = rows[rank * each : (rank + 1) * each]
model = DDP(torch.nn.Linear(2, 2).cuda())
for at in range(0, each, 8):
    model(torch.stack(mine[at : at + 8]).cuda()).mean().backward()
