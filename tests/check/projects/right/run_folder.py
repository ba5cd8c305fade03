import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

import json
def main(cfg):
    if rank == 0:
        os.makedirs(cfg.out, exist_ok=True)
        json.dump(dict(cfg), open(os.path.join(cfg.out, 'config.json'), 'w'))
    dist.barrier()
    with open(os.path.join(cfg.out, f'rank{rank}.log'), 'w') as f:
        f.write('a')
main(load())
