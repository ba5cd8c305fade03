import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
from hostlib.comm import is_rank_zero
if is_rank_zero():
    open('metrics.json', 'w')
