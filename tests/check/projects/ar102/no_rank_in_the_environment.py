import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

if 'RANK' not in os.environ:
    open('metrics.json', 'w')
