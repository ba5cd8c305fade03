import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
state = {'boss': rank == 0, 'step': 0}
state = show(state)
if state['boss']:
    open('metrics.json', 'w')
