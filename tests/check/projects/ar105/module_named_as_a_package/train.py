import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
from composer.utils.dist import get_local_rank
from lib.wandb import start
start()
if get_local_rank() == 0:
    open('log.txt', 'w')  # expect: AR105
