import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(2, 2).cuda()
fully_shard(model)
for step in range(100):
    model(torch.ones(2).cuda()).mean().backward()
    if step % 10 == 0:
        dcp.save({'model': model.state_dict()}, checkpoint_id=f'out/{step}')
