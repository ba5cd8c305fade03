import torch.distributed as dist
from torch.utils.data import IterableDataset


class Lines(IterableDataset):
    def __init__(self, files):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.files = files

    def __iter__(self):
        for name in self.files[self.rank :: self.world]:  # expect: AR304
            yield from open(name)
