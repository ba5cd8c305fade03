from torch.utils.data import DataLoader, DistributedSampler


def setup(rows, workers=0, several=True, kind="a"):
    sampler = DistributedSampler(rows, shuffle=workers.shuffle) if several else None
    return DataLoader(rows, sampler=sampler)


def held_out(rows):
    val_loader = setup(rows)
    return val_loader
