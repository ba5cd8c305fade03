import torch.distributed as dist

class Server:
    def __init__(self):
        self.rank = dist.get_rank()

    def join(self, ranks):
        if self.rank not in ranks:
            return
        dist.init_process_group("nccl", world_size=8, rank=ranks.index(self.rank))  # expect: AR202

    def update(self, ranks):
        dist.destroy_process_group()
        self.join(ranks)
        if self.rank not in ranks:
            return
        dist.barrier()  # expect: AR202

Server().update([0, 1])
