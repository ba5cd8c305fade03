import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
ctx = load()
if ctx.is_wandb_rank:
    open('metrics.json', 'w')
