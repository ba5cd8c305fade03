import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

from torchvision.datasets import CIFAR10
if local_rank == 0:
    CIFAR10('/tmp/data', download=True)
dist.barrier()
data = CIFAR10('/tmp/data', download=False)
