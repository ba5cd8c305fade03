import os
import torch.distributed as dist
def newest(folder):
    names = sorted(os.listdir(folder))
    return os.path.join(folder, names[-1]) if names else None
dist.init_process_group("nccl")
path = newest("out")
if path is not None:
    dist.barrier()
