import os
import torch.distributed as dist
dist.init_process_group('nccl')

def prepare(path, rows):
    if dist.get_rank() == 0:
        open(path, "w").write(rows)
    dist.barrier()
    if os.path.exists(path):
        dist.all_reduce(rows)  # low: AR203
