import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def agree(flag):
    dist.broadcast(torch.tensor(flag), 0)
def cancelled(tags):
    if rank == 0 and os.environ.get('KEY') is not None:
        for tag in tags:
            if tag in {'stop'}:
                agree(True)
                break
        else:
            agree(False)
    else:
        agree(False)
cancelled(['a'])
