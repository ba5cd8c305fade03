import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
x = dist.all_reduce(torch.zeros(1)) if rank == 0 else None  # expect: AR201
