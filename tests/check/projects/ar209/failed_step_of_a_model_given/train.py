import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from loop import Loop

dist.init_process_group("nccl")
loop = Loop(DDP(make()), torch.optim.SGD)
for batch in data():
    loop.step(batch)
