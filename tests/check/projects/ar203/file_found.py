import os
import torch.distributed as dist
dist.init_process_group('nccl')
if os.path.exists('a.pt'):
    dist.barrier()  # low: AR203
