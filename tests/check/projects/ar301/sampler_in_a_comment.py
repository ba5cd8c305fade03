"""DistributedSampler comes later."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

# later: with DistributedSampler
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(2, 2))
for batch in DataLoader([], batch_size=8, shuffle=True):  # expect: AR301
    model(batch).sum().backward()
