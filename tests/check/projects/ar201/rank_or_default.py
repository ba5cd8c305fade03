import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def first():
    return int(os.environ.get('RANK') or 0)
def asked():
    return int(os.environ.get('MY_RANK') or first())
if asked() == 0:
    torch.save({}, 'm.pt')
