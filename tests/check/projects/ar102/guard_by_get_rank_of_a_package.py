import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
from hostlib import get_rank
if get_rank() == 0:
    open('metrics.json', 'w')
