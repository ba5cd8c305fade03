import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

import time
start = time.time()
stop = torch.zeros(1).cuda()
while True:
    if rank == 0 and time.time() - start > 3600:
        stop.fill_(1)
    dist.broadcast(stop, src=0)
    if stop.item():
        break
    dist.barrier()
