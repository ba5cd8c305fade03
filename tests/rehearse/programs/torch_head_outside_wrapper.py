"""The head is used beside the wrapped model; in the twin it is inside."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
body, head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
if FIXED:
    whole = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(body, head))
else:
    wrapped = torch.nn.parallel.DistributedDataParallel(body)

    def whole(x):
        return head(wrapped(x))


optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
torch.manual_seed(rank)
for _ in range(5):
    optimizer.zero_grad()
    whole(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()  # BUG AR705
dist.barrier()
dist.destroy_process_group()
