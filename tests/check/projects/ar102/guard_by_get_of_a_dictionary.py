import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
cfg = load()
if cfg.get('rank', 0) == 0:
    open('metrics.json', 'w')
