import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, loader):
    hits = torch.zeros(1)
    for x in loader:
        hits += model(x)
    dist.all_reduce(hits)
    return hits


dist.init_process_group("nccl")
model, loader = DDP(torch.nn.Linear(2, 2)), read()
if dist.get_rank() == 0:
    evaluate(model, loader)  # expect: AR201
