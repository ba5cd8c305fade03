import torch.distributed as dist

def total(parts):
    parts = parts.clone()
    dist.all_reduce(parts)
    return parts
