from torch.utils.data import DataLoader, DistributedSampler


def loader(rows):
    return DataLoader(rows, sampler=DistributedSampler(rows))
