import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

found = [os.path.exists('last.pt')]
dist.broadcast_object_list(found, 0)
if found[0]:
    dist.barrier()
