import torch
import torch.distributed as dist
dist.init_process_group('nccl')
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
@torch.no_grad()
def score():
    model(1)
if dist.get_rank() == 0:
    score()
