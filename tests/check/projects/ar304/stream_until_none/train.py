import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from stream import Lines


def step(model, batch):
    model(batch).mean().backward()


def forever(loader):
    while True:
        yield from loader


def all_have(batch):
    flag = torch.tensor([int(batch is not None)])
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


def main(files, steps, epochs):
    dist.init_process_group("nccl")
    model, loader = DDP(torch.nn.Linear(2, 2)), DataLoader(Lines(files), 8)
    batches = iter(loader)
    while True:
        batch = next(batches, None)
        if batch is None:
            break
        step(model, batch)
