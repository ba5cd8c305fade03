import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import logging

logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING)
handler = logging.FileHandler(f'logs/rank_{rank}.log')
logging.getLogger().addHandler(handler)
logging.info('started')
dist.barrier()
