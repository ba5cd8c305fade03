import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

for path in paths:
    open(os.path.basename(path).rsplit('.', 1)[0] + '.json', 'w')  # expect: AR102
