import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh('cuda', (2, 4), mesh_dim_names=('dp', 'tp'))
tp = mesh.get_group('tp')
x = torch.ones(4).cuda()
dist.all_reduce(x, group=tp)
if mesh.get_local_rank('tp') == 0:
    dist.all_reduce(x, group=mesh.get_group('dp'))
if rank == 0:
    print(x)
