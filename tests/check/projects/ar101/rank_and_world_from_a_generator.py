import os, torch
import torch.distributed as dist
rank, world = (int(os.environ.get(k, d)) for k, d in zip(keys(), (0, 1)))
dist.init_process_group('gloo')
if rank == 0:
    torch.save(1, 'last.pt')
