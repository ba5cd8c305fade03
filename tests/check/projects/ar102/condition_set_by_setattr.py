import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
ctx = load()
setattr(ctx, 'boss', True)
if ctx.boss:
    open('metrics.json', 'w')  # expect: AR102
