import torch.distributed as dist
class World:
    def sum(self, x):
        dist.all_reduce(x)
def count(frame, kept):
    if dist.get_rank() == 0:
        frame.sum(kept)
