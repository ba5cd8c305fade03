"""A thread averages losses in the group in which the main thread trains; in the twin it has its own group."""

import queue
import sys
import threading

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
group = dist.new_group() if FIXED else None
losses = queue.Queue()


def average():
    while (loss := losses.get()) is not None:
        dist.all_reduce(loss, group=group)  # BUG AR211


thread = threading.Thread(target=average)
thread.start()
for _ in range(8):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean()
    loss.backward()
    optimizer.step()
    losses.put(loss.detach().reshape(1).clone())
    dist.all_reduce(torch.ones(1))
losses.put(None)
thread.join()
dist.destroy_process_group()
