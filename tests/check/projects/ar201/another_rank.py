import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
if rank == 3:
    dist.barrier()  # expect: AR201
