import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Only:
    def __init__(self, *ranks):
        self.ranks = ranks
    def __call__(self, f):
        def inner(*args, **kwargs):
            if dist.get_rank() in self.ranks:
                return f(*args, **kwargs)
        return inner
first = Only(0)
@Only(0)
def save():
    torch.save({}, 'last.pt')
@first
def clean():
    os.remove('best.pt')
save()
clean()
