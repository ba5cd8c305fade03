import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler


class Stopper:
    def step(self, loss):
        return loss > 1


def data(rows, train):
    sampler = DistributedSampler(rows, shuffle=train)
    return DataLoader(rows, 8, sampler=sampler), sampler


@torch.no_grad()
def validate(model, loader):
    losses = [model(x).item() for x in loader]
    return mean_over_all_ranks(losses)


def main(model, optimizer, rows, val_rows, stopper):
    train_loader, sampler = data(rows, True)
    val_loader, _ = data(val_rows, False)
    schedule = ReduceLROnPlateau(optimizer)
    stopper = Stopper()
    for epoch in range(9):
        sampler.set_epoch(epoch)
        for x in train_loader:
            model(x).backward()
        val = validate(model, val_loader)
        if stopper.step(val):
            break
