from rows import Rows
from torch.utils.data import DataLoader, DistributedSampler


def main(files):
    rows = Rows(files)
    return DataLoader(rows, sampler=DistributedSampler(rows))
