import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

model = DDP(torch.nn.Linear(2, 2).cuda())
def evaluate(net, rows):
    net.eval()
    with torch.no_grad():
        return sum(net(x).mean().item() for x in rows)
if rank == 0:
    print(evaluate(model.module, rows))
dist.barrier()
