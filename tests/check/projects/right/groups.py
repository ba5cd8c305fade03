import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

even = dist.new_group(list(range(0, world, 2)))
odd = dist.new_group(list(range(1, world, 2)))
x = torch.ones(1).cuda()
if rank % 2 == 0:
    dist.all_reduce(x, group=even)
else:
    dist.all_reduce(x, group=odd)
dist.barrier()
