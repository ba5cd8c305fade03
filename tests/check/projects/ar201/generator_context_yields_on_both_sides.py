import os
import torch.distributed as dist
from contextlib import contextmanager

dist.init_process_group('nccl')
rank = dist.get_rank()

@contextmanager
def first():
    if int(os.environ['LOCAL_RANK']) != 0:
        dist.barrier()
        yield
    else:
        yield
        dist.barrier()
with first():
    print('works')
