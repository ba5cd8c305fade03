import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

def is_dist():
    return dist.is_available() and dist.is_initialized()
def get_rank():
    return dist.get_rank() if is_dist() else 0
def is_main():
    return get_rank() == 0
def barrier():
    if is_dist():
        dist.barrier()
def reduce_mean(x):
    if not is_dist():
        return x
    y = x.clone()
    dist.all_reduce(y)
    return y / dist.get_world_size()
os.makedirs('out', exist_ok=True)
barrier()
if is_main():
    with open('out/log.txt', 'w') as f:
        f.write('a')
print(reduce_mean(torch.ones(1).cuda()))
