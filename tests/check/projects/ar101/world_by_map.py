import os, torch
import torch.distributed as dist
rank, world = map(int, (os.environ['RANK'], os.environ['WORLD_SIZE']))
dist.init_process_group('gloo')
if world == 0:
    torch.save(1, 'last.pt')  # missed: AR101
