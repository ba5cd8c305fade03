import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
main = rank == 0
if main and os.environ.get('SAVE'):
    torch.save({}, 'm.pt')
