import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
from hostlib.comm import get_is_main
if get_is_main():
    open('metrics.json', 'w')
