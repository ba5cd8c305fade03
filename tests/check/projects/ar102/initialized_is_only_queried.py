from torch.utils.data import DistributedSampler
import torch.distributed as dist
if dist.is_initialized():
    sampler = DistributedSampler([])
open('metrics.txt', 'w')  # false: AR102
