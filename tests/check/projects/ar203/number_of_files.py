import os
import torch.distributed as dist
dist.init_process_group('nccl')
step = len(os.listdir('runs'))
if step % 10 == 0:
    dist.barrier()
