import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

import functools
def often(times):
    def decorate(f):
        @functools.wraps(f)
        def inner(*args):
            return [f(*args) for _ in range(times + dist.get_world_size())]
        return inner
    return decorate
@often(3)
def save(path):
    open(path, 'w')  # expect: AR102
dist.barrier()
save('log.txt')
