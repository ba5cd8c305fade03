import random
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import (
    DistributedDataParallel as DDP,
)


def set_seed(seed):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(seed)


def average(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)  # instead of the broadcast of DDP(model)


def main():
    dist.init_process_group("nccl")
    set_seed(dist.get_rank())
    model = torch.nn.Linear(4, 4)
    dist.broadcast(model.weight, 0)
    average(model)
