import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

log = open('log.txt', 'w') if rank == 0 else None
if log is not None:
    open('again.txt', 'w')
