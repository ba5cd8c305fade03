import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = f"cuda:{int(os.environ['LOCAL_RANK'])}"
per = 100 // world
for i in range(rank * per, (rank + 1) * per):
    dist.all_reduce(torch.zeros(1))
times = torch.zeros(world, device=device)
for i in range(times.size(0)):
    dist.broadcast(times[i], src=i)
for i in range(10 + rank):
    dist.all_reduce(torch.zeros(1))  # expect: AR201
