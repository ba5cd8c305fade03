import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Runner:
    def __init__(self, rank):
        if rank == 0:
            self.log = load()
    def finish(self):
        if hasattr(self, 'log'):
            open('metrics.json', 'w')
Runner(rank).finish()
