import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

def gather(x):
    sizes = [torch.zeros(1, dtype=torch.long, device='cuda') for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(x)], device='cuda'))
    most = max(int(size) for size in sizes)
    padded = torch.zeros(most, device='cuda')
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return [part[: int(size)] for part, size in zip(parts, sizes)]

print(gather(torch.ones(rank + 1).cuda()))
