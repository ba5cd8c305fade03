import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Env:
    def __init__(self, number):
        self.number = number
    @classmethod
    def make(cls):
        return cls(int(os.environ['SEED']))
    @property
    def begins(self):
        return self.number == 0
env = Env.make()
if env.begins:
    open('metrics.json', 'w')  # expect: AR102
