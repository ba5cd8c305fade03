import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

group = make_group(rank) if rank == 0 else None
if group:
    dist.destroy_process_group(group)
