import torch.distributed as dist

dist.init_process_group('nccl')
from ai.board import SummaryWriter

SummaryWriter('runs')  # expect: AR103
