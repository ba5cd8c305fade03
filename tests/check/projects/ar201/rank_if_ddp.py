import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

ddp = int(os.environ.get('RANK', -1)) != -1
if ddp:
    boss = int(os.environ['RANK']) == 0
else:
    boss = True
if boss:
    torch.save({}, 'm.pt')
