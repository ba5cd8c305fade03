import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import glob

files = sorted(glob.glob('/data/*.tar'))
mine = files[rank::world]
with open(f'out/part_{rank}.txt', 'w') as out:
    for name in mine:
        out.write(name)
dist.barrier()
if rank == 0:
    with open('out/all.txt', 'w') as out:
        for part in range(world):
            out.write(open(f'out/part_{part}.txt').read())
