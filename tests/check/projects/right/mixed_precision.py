import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler('cuda')
for step in range(100):
    with torch.autocast('cuda'):
        loss = model(torch.ones(2).cuda()).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if norm > 100:
        dist.barrier()
