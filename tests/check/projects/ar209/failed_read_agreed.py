import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
rank = dist.get_rank()

for i in range(100):
    ok = torch.ones(1)
    try:
        x = torch.load(f"data/{rank}_{i}.pt")
    except OSError:
        ok = torch.zeros(1)
    dist.all_reduce(ok, op=dist.ReduceOp.MIN)
    if not ok:
        continue
    model(x).mean().backward()
    optimizer.step()
