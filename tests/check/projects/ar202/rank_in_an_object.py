import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Gang:
    def __init__(self, rank):
        self.rank = rank

def gang(groups):
    return Gang(dist.get_rank())

def save(model, groups):
    if gang(groups).rank != 0:
        return
    print(model.state_dict())  # expect: AR202

dist.init_process_group("nccl")
save(FSDP(torch.nn.Linear(2, 2)), make_groups())
