import os
import torch
import torch.distributed as dist
dist.init_process_group('nccl')
if not os.path.exists('a.pt'):
    if dist.get_rank() == 0:
        torch.save({}, 'a.pt')
    dist.barrier()  # expect: AR203
