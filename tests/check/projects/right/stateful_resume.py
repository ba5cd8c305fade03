import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

def save(model, optimizer, step):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({'model': model_state, 'optimizer': optimizer_state}, checkpoint_id=f'/shared/{step}')

def resume(model, optimizer, step):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load({'model': model_state, 'optimizer': optimizer_state}, checkpoint_id=f'/shared/{step}')
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)

model = DDP(torch.nn.Linear(2, 2).cuda())
optimizer = torch.optim.AdamW(model.parameters())
step = int(os.environ.get('RESUME', 0))
if step:
    resume(model, optimizer, step)
for step in range(step, 100):
    model(torch.ones(2).cuda()).mean().backward()
    optimizer.step()
    if step % 10 == 0:
        save(model, optimizer, step)
