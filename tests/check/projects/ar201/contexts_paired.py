import torch.distributed as dist
from contextlib import contextmanager
@contextmanager
def first(rank, several):
    if not several:
        yield
        return
    if rank != 0:
        dist.barrier()
    try:
        yield
    finally:
        if rank == 0:
            dist.barrier()
@contextmanager
def begin(rank):
    if rank != 0:
        dist.barrier()
    yield
with first(dist.get_rank(), dist.get_world_size() > 1):
    print('works')
with begin(dist.get_rank()):
    print('works')
if dist.get_rank() == 0:
    dist.barrier()
