import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def find():
    found = 0
    for name in ('RANK', 'SLURM_PROCID'):
        if name in os.environ:
            found = int(os.environ[name])
            break
    return found
if find() == 0:
    open('log.txt', 'w')  # false: AR102
