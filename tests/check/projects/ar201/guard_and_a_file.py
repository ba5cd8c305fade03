import torch.distributed as dist

dist.init_process_group('nccl')
import os

def get(path):
    if dist.get_rank() == 0 and not os.path.exists(path):
        dist.barrier()  # expect: AR201
