import torch.distributed as dist

dist.init_process_group('nccl')
import wandb
logs = False
exec(open('configurator.py').read())
if logs:
    wandb.init(project='p')  # expect: AR103
