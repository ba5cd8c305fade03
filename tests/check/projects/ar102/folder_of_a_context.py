import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

import contextlib
@contextlib.contextmanager
def staged(path):
    yield path
with staged(os.environ['OUT']) as folder:
    open(os.path.join(folder, 'config.json'), 'w')  # expect: AR102
