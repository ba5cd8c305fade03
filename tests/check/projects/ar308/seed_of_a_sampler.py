import torch
import torch.distributed as dist
from torch.utils.data import Sampler


class Repeated(Sampler):
    def __init__(self, rows):
        self.rows, self.rank, self.world = rows, dist.get_rank(), dist.get_world_size()
        self.seed = torch.seed()

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(self.rows), generator=g).tolist()  # expect: AR308
        return iter(order[self.rank :: self.world])
