import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Linear(2, 2).cuda())

from torch.utils.data import DataLoader
rows = load()
mine = [row for at, row in enumerate(rows) if at % world == rank]  # expect: AR304
for batch in DataLoader(mine, batch_size=8):
    model(batch.cuda()).mean().backward()
