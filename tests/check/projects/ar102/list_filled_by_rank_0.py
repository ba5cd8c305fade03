import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
loggers = []
if rank == 0:
    loggers.append(load())
for one in loggers:
    open('metrics.json', 'w')
