import torch
from data import Rows
from torch.utils.data import DataLoader, DistributedSampler

def loader(rows):
    g = torch.Generator()
    g.manual_seed(0)
    sampler = DistributedSampler(Rows(rows))
    return DataLoader(Rows(rows), batch_size=8, sampler=sampler, num_workers=8, generator=g)
