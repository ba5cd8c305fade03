import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
from hostlib import get_dist_info
rank, world = get_dist_info()
if rank == 0:
    open('metrics.json', 'w')
