import torch.distributed as dist

dist.init_process_group('nccl')
from base import Engine

def save(engine: Engine):
    engine.write_all('x')
