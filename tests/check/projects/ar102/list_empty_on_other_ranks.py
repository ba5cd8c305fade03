import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
loggers = [load()] if rank == 0 else []
for one in loggers:
    open('metrics.json', 'w')
