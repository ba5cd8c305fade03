import torch
import torch.distributed as dist
from data import val_loader


def validate(model, val_set):
    total = torch.zeros(2)
    for x, y in val_loader(val_set):
        total += torch.stack([model(x).sum(), y.sum()])
    return total[0] / total[1]  # expect: AR310


def train(model, rows):
    loss = sum(model(row) for row in rows)
    loss.backward()
    dist.all_reduce(loss)


dist.init_process_group("nccl")
train(make_model(), [])
validate(make_model(), [])
