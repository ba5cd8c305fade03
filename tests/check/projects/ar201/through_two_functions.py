import torch.distributed as dist
def outer():
    inner()
def inner():
    dist.barrier()
if dist.get_rank() == 0:
    outer()  # expect: AR201
