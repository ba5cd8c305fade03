"""Saves in place and swallows an error; the twin saves by rename, also after SIGTERM, and lets errors end the rank."""

import os
import signal
import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
done, notices = 0, []
if os.path.exists("last.pt"):
    saved = torch.load("last.pt")  # BUG AR023
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    done = saved["step"]
dist.barrier()
if FIXED:
    signal.signal(signal.SIGTERM, lambda *_: notices.append(1))


def save(step):
    if rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, "next.pt" if FIXED else "last.pt")
        if FIXED:
            os.replace("next.pt", "last.pt")
    dist.barrier()


for step in range(done, 16):
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1000 * step + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    try:
        optimizer.step()  # BUG AR021
    except RuntimeError:
        if FIXED:
            raise
    notice = torch.tensor(float(bool(notices)))
    dist.all_reduce(notice)
    if step % 5 == 4 or notice > 0:
        save(step + 1)
    if notice > 0:
        sys.exit(143)
dist.destroy_process_group()
