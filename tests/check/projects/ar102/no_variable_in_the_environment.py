import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

if os.environ.get('RUN_ID') is None:
    open('metrics.json', 'w')  # expect: AR102
