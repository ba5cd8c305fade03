import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

x = torch.zeros(1)
if rank == 0:
    dist.broadcast(x, 0)
else:
    dist.broadcast(x, 0)
