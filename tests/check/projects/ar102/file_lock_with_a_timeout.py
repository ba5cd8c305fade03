import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

import filelock
lock = filelock.FileLock('x.lock')
with lock.acquire(timeout=1):
    open('x', 'w')
