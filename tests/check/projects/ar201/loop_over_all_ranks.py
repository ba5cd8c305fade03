import torch.distributed as dist

dist.init_process_group('nccl')
class Graph:
    def __init__(self, rank, size):
        self.rank = rank
        self.groups = [self.group(rank) for rank in range(size)]
        for rank in range(size):
            peer = turn(rank)
            if not self.passive(rank) and self.passive(peer):
                self.group(rank)

    def passive(self, rank=None):
        rank = self.rank if rank is None else rank
        return rank % 2 == 0

    def group(self, rank):
        return dist.new_group([rank, rank + 1]) if rank % 2 else None
Graph(dist.get_rank(), dist.get_world_size())
