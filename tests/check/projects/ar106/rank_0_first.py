import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

from torchvision.datasets import MNIST
if rank != 0:
    dist.barrier()
MNIST('data', download=True)
if rank == 0:
    dist.barrier()
