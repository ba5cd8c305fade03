import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

if 'LOCAL_RANK' not in os.environ.keys():
    open('metrics.json', 'w')  # false: AR102
