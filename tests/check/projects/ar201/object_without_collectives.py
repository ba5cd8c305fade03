import torch.distributed as dist

dist.init_process_group('nccl')
from kinds import Plain

engine = Plain()
if dist.get_rank() == 0:
    engine.write_all('x')
