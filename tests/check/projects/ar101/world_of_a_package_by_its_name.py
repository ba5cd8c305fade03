import torch
import torch.distributed as dist
from elsewhere import setup
rank, world = setup()
dist.init_process_group('gloo')
if world == 0:
    torch.save(1, 'last.pt')  # expect: AR101
