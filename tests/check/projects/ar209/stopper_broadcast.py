import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class EarlyStopping:
    def __init__(self):
        self.best, self.bad, self.stop = 1e9, 0, False

    def __call__(self, v):
        self.bad = 0 if v < self.best else self.bad + 1
        self.stop = self.bad > 3


def validate(model, loader):
    losses = [model(x).mean().item() for x in loader]
    return sum(losses) / len(losses)


def main(ds, val_set, train_epoch):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 4))
    val_loader = DataLoader(val_set, 32, sampler=DistributedSampler(val_set, shuffle=False))
    es = EarlyStopping()
    best, bad = 1e9, 0
    for epoch in range(100):
        train_epoch(model, ds, epoch)
        es(validate(model, val_loader))
        stop = broadcast(es.stop)
        if stop:
            break
