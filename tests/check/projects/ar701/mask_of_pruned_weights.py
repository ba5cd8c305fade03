import torch
from torch.nn.parallel import DistributedDataParallel


def prune(weights, ratio):
    return weights * (torch.rand_like(weights) > ratio)


torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.zeros(2)).sum().backward()
prune(model.module.weight.data, 0.1)
