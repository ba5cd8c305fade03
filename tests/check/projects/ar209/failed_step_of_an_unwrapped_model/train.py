import torch
import torch.distributed as dist
from loop import Loop

dist.init_process_group("nccl")
loop = Loop(make(), torch.optim.SGD)
for batch in data():
    loop.step(batch)
