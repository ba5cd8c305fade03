import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, opt):
    t0 = time.monotonic()
    for batch in loader:
        model(batch).mean().backward()
        opt.step()
    if time.monotonic() - t0 > 3600:
        return


dist.init_process_group("nccl")
train(DDP(torch.nn.Linear(16, 16)), [], None)
