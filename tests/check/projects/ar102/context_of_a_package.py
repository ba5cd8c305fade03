import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
from hostlib.locks import open_block
with open_block('x'):
    open('metrics.json', 'w')  # expect: AR102
