import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def val_loader(val_set):
    return DataLoader(Subset(val_set, range(dist.get_rank(), len(val_set), dist.get_world_size())))
