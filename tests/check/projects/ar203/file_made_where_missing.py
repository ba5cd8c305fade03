import os
import torch.distributed as dist
dist.init_process_group('nccl')

def prepare(path, rows):
    if not os.path.exists(path):
        open(path, "w").write(rows)
        dist.barrier()  # expect: AR203
