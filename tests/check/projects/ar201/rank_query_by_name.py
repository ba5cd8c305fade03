import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def ask(variable, default, query=None):
    if dist.is_initialized() and query is not None:
        return int(getattr(dist, query)())
    if variable in os.environ:
        return int(os.environ[variable])
    return default
if ask('RANK', 0, query='get_rank') == 0:
    torch.save({}, 'm.pt')
if ask('RANK', 0) == 0:
    torch.save({}, 'm.pt')
