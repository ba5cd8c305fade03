import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank != 0:
    sys.exit(0)
dist.barrier()  # expect: AR202
