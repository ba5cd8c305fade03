import torch
import torch.distributed as dist
from elsewhere import setup
rank, world = setup()
dist.init_process_group('gloo')
if rank == 0:
    torch.save(1, 'last.pt')
