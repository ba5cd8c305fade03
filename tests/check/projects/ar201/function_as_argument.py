import functools
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
mean = functools.partial(dist.all_reduce, 1)

def f(g):
    g()

def m():
    dist.all_reduce(1)

if rank == 0:
    f(m)  # expect: AR201
