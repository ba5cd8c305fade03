import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset


def part_of(rows, rank, world):
    n = len(rows) // world
    return Subset(rows, range(rank * n, (rank + 1) * n))


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model, rows = DDP(make_model()), read()
    n = len(rows) // world
    order = torch.randperm(n * world, generator=torch.Generator().manual_seed(0)).tolist()
    part = Subset(rows, indices=list(range(rank * n, (rank + 1) * n)))
    for batch in DataLoader(part, 32, shuffle=True, drop_last=True):
        model(batch).backward()


main()
