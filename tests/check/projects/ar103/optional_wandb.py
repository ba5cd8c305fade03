try:
    import wandb
except ImportError:
    wandb = None
import torch.distributed as dist

dist.init_process_group('nccl')
if wandb is not None:
    wandb.init(project='p')  # expect: AR103
