import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

import wandb
run = wandb.init(project='p') if rank == 0 else None
for step in range(10):
    loss = torch.ones(1).cuda()
    dist.all_reduce(loss)
    if run is not None:
        run.log({'loss': loss.item()})
if run:
    run.finish()
