import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
from tools import dist_utils
if dist_utils.is_main_process():
    open('metrics.json', 'w')
