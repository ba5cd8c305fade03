import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
loggers = [load()] if os.environ.get('LOG') else []
for one in loggers:
    open('metrics.json', 'w')  # expect: AR102
