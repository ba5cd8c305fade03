import torch
import torch.distributed as dist

dist.init_process_group("nccl")
value = torch.zeros(1)
dist.broadcast(value, src=dist.get_rank())  # expect: AR208
if dist.get_rank() == 3:
    dist.broadcast(value, src=dist.get_rank())
else:
    dist.broadcast(value, src=3)
