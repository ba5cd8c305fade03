import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rows(Dataset):
    def __init__(self, rows, rank):
        self.rank = rank
        self.order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))

    def __getitem__(self, i):
        return self.order[i]


dist.init_process_group("nccl")
rows = Rows([], dist.get_rank())
for batch in DataLoader(rows, sampler=DistributedSampler(rows)):
    batch.backward()
