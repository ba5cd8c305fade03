import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group('nccl')
rank = dist.get_rank()

def evaluate(model, args):
    if rank != 0:
        return
    if args.distributed and hasattr(model, 'module'):
        model = model.module
    model(1)
evaluate(DDP(torch.nn.Linear(2, 2)), 1)
