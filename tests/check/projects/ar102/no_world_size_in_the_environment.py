import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

if not os.environ.get('WORLD_SIZE'):
    open('metrics.json', 'w')
