import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

parts = [None] * dist.get_world_size() if rank == 0 else None
dist.gather_object({'a': 1}, parts, dst=0)
if rank == 0:
    with open('out.json', 'w') as f:
        f.write(str(parts))
