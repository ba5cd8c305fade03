import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Linear(2, 2).cuda())

rows = load()[rank::world]  # expect: AR304
for at in range(0, len(rows), 8):
    model(torch.stack(rows[at:at + 8]).cuda()).mean().backward()
