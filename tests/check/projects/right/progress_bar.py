import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

from tqdm import tqdm

bar = tqdm(range(100), disable=rank != 0)
for step in bar:
    x = torch.ones(1).cuda()
    dist.all_reduce(x)
    if rank == 0:
        bar.set_description(f'{x.item():.2f}')
