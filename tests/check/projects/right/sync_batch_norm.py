import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).cuda()
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
model = DDP(model, device_ids=[local_rank])
for _ in range(10):
    model(torch.ones(4, 2).cuda()).mean().backward()
model.eval()
if rank == 0:
    with torch.no_grad():
        print(model.module(torch.ones(4, 2).cuda()))
