import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
if dist.get_world_size() > 1 and rank != -1:
    dist.barrier()
