import os
import numpy as np
import torch.distributed as dist

dist.init_process_group('nccl')
if dist.get_rank() == 0:
    print('begin')
local_rank = int(os.environ['LOCAL_RANK'])

if local_rank == 0:
    for i in range(40):
        np.save(f'data/{i}.npy', [i])  # expect: AR105
