import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def save():
    if rank != 0:
        return
    torch.save({}, 'm.pt')
save()
