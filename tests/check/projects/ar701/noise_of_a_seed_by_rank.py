import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model, loader, seed):
    dist.init_process_group("nccl")
    torch.manual_seed(seed + dist.get_rank())
    model = DistributedDataParallel(model)
    for batch in loader:
        noise = torch.randn_like(batch)
        model(batch + noise).sum().backward()
