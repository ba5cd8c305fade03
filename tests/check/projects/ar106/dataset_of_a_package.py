import torch.distributed as dist

dist.init_process_group('nccl')
from medmnist import PathMNIST

PathMNIST(split='train', download=True)  # expect: AR106
