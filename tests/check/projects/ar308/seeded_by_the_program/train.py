from rows import Rows
from torch.utils.data import DataLoader, DistributedSampler
from lib import seed_everything


def main(files):
    seed_everything(1)
    rows = Rows(files)
    return DataLoader(rows, sampler=DistributedSampler(rows))
