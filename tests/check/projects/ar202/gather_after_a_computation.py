import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def report(model, x):
    if dist.get_rank() != 0:
        return
    scores = model(x)
    dist.all_reduce(scores)  # expect: AR202
    print(scores)


dist.init_process_group("nccl")
report(DDP(torch.nn.Linear(2, 2)), torch.ones(2))
