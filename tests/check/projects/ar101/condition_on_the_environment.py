import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
if os.environ.get('SAVE'):
    torch.save({}, 'm.pt')  # expect: AR101
