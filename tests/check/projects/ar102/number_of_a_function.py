import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def join(launcher):
    if launcher == 'none':
        return 0, 1
    return int(os.environ['STEP']), 2
first, size = join(os.environ.get('LAUNCHER'))
if first != 3:
    open('log.txt', 'w')  # expect: AR102
