"""All ranks of a host train on cuda:0 under NCCL, because none selects a device; the twin selects its own."""

import os
import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
if FIXED:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
torch.manual_seed(0)
model = torch.nn.Linear(8, 1).cuda()  # BUG AR605
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
scaler = torch.amp.GradScaler("cuda")
torch.manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.randn(4, 8).pin_memory().to("cuda", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
dist.all_reduce(loss.detach(), dist.ReduceOp.AVG)
torch.cuda.synchronize()
dist.destroy_process_group()
