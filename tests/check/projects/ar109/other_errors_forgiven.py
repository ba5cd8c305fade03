import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

try:
    os.remove('a')  # expect: AR109
except (KeyError, ValueError):
    pass
