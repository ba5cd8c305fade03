import torch.distributed as dist

dist.init_process_group('nccl')
from pathlib import Path

beside = Path('a.txt').with_name(f'{dist.get_rank()}.txt')
open(beside, 'w')
