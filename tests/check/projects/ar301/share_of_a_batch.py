import torch.distributed as dist
from torch.utils.data import DataLoader


def loader(rows, global_batch, train):
    size = global_batch // dist.get_world_size()
    return DataLoader(rows, batch_size=size, shuffle=train, drop_last=train)  # expect: AR301
