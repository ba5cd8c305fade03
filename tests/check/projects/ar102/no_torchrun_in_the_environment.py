import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

if os.environ.get('TORCHELASTIC_RUN_ID') is None:
    open('metrics.json', 'w')
