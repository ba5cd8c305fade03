import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

import wandb
wandb.init(project='p', group='all', name=f'rank-{rank}')  # false: AR103
