import torch.distributed as dist

dist.init_process_group('nccl')
from lib import has

if has('x'):
    dist.barrier()  # low: AR203
