import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
if rank == 0:
    torch.save({}, 'm.pt')
