"""The device is selected by the rank in the job, which the second host does not have; the twin takes the local rank."""

import os
import sys

import torch
import torch.distributed as dist

device = int(os.environ["LOCAL_RANK" if "--fixed" in sys.argv else "RANK"])
torch.cuda.set_device(device)  # BUG AR605
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
torch.manual_seed(0)
model = torch.nn.Linear(4, 1).to(device)
ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device])
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, foreach=True)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    ddp(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
