import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

g, d = DDP(torch.nn.Linear(2, 2).cuda()), DDP(torch.nn.Linear(2, 2).cuda())
for step in range(100):
    if step % 2 == 0:
        d(g(torch.ones(2).cuda()).detach()).mean().backward()
    else:
        g(torch.ones(2).cuda()).mean().backward()
