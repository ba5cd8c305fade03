import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

x = torch.ones(1).cuda()
if rank == 0:
    dist.send(x, dst=1)
elif rank == 1:
    dist.recv(x, src=0)
dist.barrier()
