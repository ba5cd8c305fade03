import torch.distributed as dist
from torchvision.datasets import MNIST

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    MNIST("data", download=True)
dist.barrier()
data = MNIST("data", download=True)
others = MNIST("more", download=True)  # expect: AR106
