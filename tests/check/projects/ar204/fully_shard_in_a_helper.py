import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def loss_of(model, x):
    return model(x).sum().item()


def shard(model, mesh=None):
    for block in model:
        fully_shard(block)
    fully_shard(model, mesh=mesh)


def main():
    dist.init_process_group("nccl")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4)).cuda()
    shard(model)
    model.train()
    model(torch.ones(4)).sum().backward()
    if dist.get_rank() == 0:
        print(model(torch.ones(4)))  # missed: AR204


main()
