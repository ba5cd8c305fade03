import torch.distributed as d
RANK = d.get_rank()

def boss():
    return RANK == 0
