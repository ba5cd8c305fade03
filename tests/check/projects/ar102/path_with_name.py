import torch.distributed as dist

dist.init_process_group('nccl')
from pathlib import Path

open(Path('a.txt').with_name('b.txt'), 'w')  # expect: AR102
