import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
from parts import load

def share(model, mesh):
    fully_shard(model)
    if dist.get_rank() == 0:
        print(get_model_state_dict(model))  # expect: AR201
    pass

dist.init_process_group("nccl")
share(load(), None)
