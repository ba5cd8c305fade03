import torch.distributed as dist
from runner import Runner

if dist.get_rank() == 0:
    Runner().save('a')
