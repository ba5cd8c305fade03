import os
import torch.distributed as dist

dist.init_process_group('nccl')
if dist.get_rank() == 0:
    print('begin')
local_rank = int(os.environ['LOCAL_RANK'])
if local_rank == 0:
    os.system('rm waits')  # expect: AR105
