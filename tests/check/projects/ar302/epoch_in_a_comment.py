"""The sampler needs set_epoch(epoch)."""
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
loader = DataLoader([], sampler=DistributedSampler([]))  # expect: AR302
for epoch in range(3):
    # TODO: sampler.set_epoch(epoch)
    for batch in loader:
        batch.loss().backward()
