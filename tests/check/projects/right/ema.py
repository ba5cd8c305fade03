import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import copy

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
ema = copy.deepcopy(model.module).eval()
for step in range(100):
    model(torch.ones(2).cuda()).mean().backward()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.module.parameters()):
            a.lerp_(b, 0.01)
    if rank == 0 and step % 10 == 0:
        print(ema(torch.ones(2).cuda()).mean().item())
        torch.save(ema.state_dict(), 'ema.pt')
