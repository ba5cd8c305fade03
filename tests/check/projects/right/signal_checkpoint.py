import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import signal

stop = False

def handle(number, frame):
    global stop
    stop = True

signal.signal(signal.SIGUSR1, handle)
for step in range(1000):
    flag = torch.tensor([float(stop)]).cuda()
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    if flag.item() > 0:
        if rank == 0:
            torch.save({'step': step}, 'last.pt')
        dist.barrier()
        break
