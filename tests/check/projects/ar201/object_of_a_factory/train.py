import torch.distributed as dist

dist.init_process_group('nccl')
from factory import make

engine = make('b')
if dist.get_rank() == 0:
    engine.write_all('x')  # expect: AR201
