import torch.distributed as dist

class Base:
    @property
    def boss(self):
        return dist.get_rank() == 0

    def mean(self, x):
        dist.all_reduce(x)
