import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Runner:
    def __init__(self, logger=None):
        self.logger = logger
    def finish(self):
        if self.logger is not None:
            self.keep()
    def keep(self):
        open('metrics.json', 'w')
if rank == 0:
    runner = Runner(load())
else:
    runner = Runner()
runner.finish()
