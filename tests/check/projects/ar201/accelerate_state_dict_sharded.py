import os
import torch
import torch.distributed as dist
from contextlib import contextmanager
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group('nccl')
rank = dist.get_rank()

from torch.distributed.fsdp import FullyShardedDataParallel
def save(accelerator, model):
    if accelerator.is_main_process:
        accelerator.get_state_dict(model)  # expect: AR201
