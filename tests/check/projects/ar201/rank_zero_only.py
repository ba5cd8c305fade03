import torch.distributed as dist
from lightning.pytorch.utilities import rank_zero_only

@rank_zero_only
def log(x):
    dist.all_reduce(x)

log(1)  # expect: AR201
