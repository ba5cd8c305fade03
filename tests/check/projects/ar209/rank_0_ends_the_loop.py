import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
def main(loader, validate):
    dist.init_process_group("nccl")
    model, stop = DDP(torch.nn.Linear(2, 2)), False
    for epoch in range(10):
        for batch in loader:
            model(batch).backward()  # expect: AR209
        if dist.get_rank() == 0:
            if validate() < 1:
                stop = True
        if stop:
            break
