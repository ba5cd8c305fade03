import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(2, 2))
@torch.no_grad()
def estimate(batches):
    return [model(batch).item() for batch in batches]
if dist.get_rank() == 0:
    estimate([1])
