import torch.distributed as dist

dist.init_process_group('nccl')
import functools

def timed(f):
    @functools.wraps(f)
    def inner(*args):
        return f(*args)
    return inner

@timed
def mean(x):
    dist.all_reduce(x)

if dist.get_rank() == 0:
    mean(1)  # expect: AR201
