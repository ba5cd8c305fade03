import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
if rank == 0:
    dist.new_group([0])  # expect: AR201
