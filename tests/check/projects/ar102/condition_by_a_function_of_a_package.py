import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
from hostlib.comm import is_done
if is_done():
    open('metrics.json', 'w')  # expect: AR102
