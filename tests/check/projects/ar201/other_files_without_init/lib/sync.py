import torch.distributed as dist

def mean(x):
    dist.all_reduce(x)
    return x
