"""A resumed run gives every rank the random state of rank 0; in the twin each rank has its own."""

import os
import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
corpus = torch.randn(256, 8)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
done = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt")  # BUG AR006
    done = saved["step"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"][rank if FIXED else 0])
dist.barrier()
for step in range(done, 16):
    x = corpus[rank::size][4 * step : 4 * step + 4]
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if step % 4 == 3:
        random = [None] * size
        dist.all_gather_object(random, torch.get_rng_state())
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "random": random, "step": step + 1}, "next.pt")
            os.replace("next.pt", "last.pt")
        dist.barrier()
dist.destroy_process_group()
