import torch.distributed as dist
from tools.runner import Runner

dist.init_process_group('nccl')
Runner().save('last.pt')
