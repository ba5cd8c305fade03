import torch
import torch.distributed as dist
from data import val_loader


def validate(model, val_set, world):
    total = torch.zeros(2)
    for x, y in val_loader(val_set):
        total += torch.stack([model(x).sum(), y.sum()])
    world.sum_(total)
    return total[0] / total[1]


dist.init_process_group("nccl")
validate(make_model(), [], make_world())
