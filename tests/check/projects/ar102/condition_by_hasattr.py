import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Runner:
    def __init__(self, rank):
        self.log = load()
    def finish(self):
        if hasattr(self, 'log'):
            open('metrics.json', 'w')  # expect: AR102
Runner(rank).finish()
