import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
def bye():
    print("bye")
    sys.exit()
if rank != 0:
    bye()
dist.barrier()  # expect: AR202
