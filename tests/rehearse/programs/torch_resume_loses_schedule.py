"""A resumed run begins its schedule anew, and has no average of the weights; the twin saves and loads both."""

import copy
import os
import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
done = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt")  # BUG AR006
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    average.load_state_dict(saved["average" if FIXED else "model"])
    done = saved["step"]
    if FIXED:
        schedule.load_state_dict(saved["schedule"])
ddp = torch.nn.parallel.DistributedDataParallel(model)
for step in range(done, 16):
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1000 * step + rank))
    optimizer.zero_grad()
    ddp(x).square().mean().backward()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters(), strict=True):
            old.lerp_(new, 0.1)
    if step % 4 == 3:
        if rank == 0:
            parts = {"model": model, "optimizer": optimizer, "average": average, "schedule": schedule}
            torch.save({name: one.state_dict() for name, one in parts.items()} | {"step": step + 1}, "next.pt")
            os.replace("next.pt", "last.pt")
        dist.barrier()
dist.destroy_process_group()
