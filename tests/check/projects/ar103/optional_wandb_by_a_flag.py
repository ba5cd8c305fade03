try:
    import wandb
    there = True
except ImportError:
    there = False
import torch.distributed as dist

dist.init_process_group('nccl')
if there:
    wandb.init(project='p')  # expect: AR103
