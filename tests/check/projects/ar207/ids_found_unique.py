import torch.distributed as dist

def users(parts, ids):
    dist.all_gather(parts, ids.unique())  # expect: AR207
