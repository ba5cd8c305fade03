import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

if os.environ.get('RANK', '0') == '0':
    open('metrics.json', 'w')
