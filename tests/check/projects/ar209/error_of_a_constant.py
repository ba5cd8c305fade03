import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
rank = dist.get_rank()

for i in range(100):
    try:
        print(i / (i - 1))
    except ZeroDivisionError:
        continue
    model(x).mean().backward()
    optimizer.step()
