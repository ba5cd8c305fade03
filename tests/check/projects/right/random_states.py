import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

torch.save({'rng': torch.get_rng_state()}, f'out/rng_{rank}.pt')
if rank == 0:
    torch.save({}, 'out/model.pt')
