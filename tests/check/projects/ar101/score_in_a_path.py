import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
data = read()
model = DDP(torch.nn.Linear(2, 2))
for x in DataLoader(data, sampler=DistributedSampler(data)):
    loss = model(x).mean()
    torch.save(model.state_dict(), f"loss_{loss:.3f}.pt")  # expect: AR101
