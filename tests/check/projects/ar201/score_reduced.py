import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
def evaluate(model, batches):
    total = torch.zeros(1)
    for batch in batches:
        total += model(batch)
    dist.all_reduce(total)
    return total.item()
def fit(model, train, val_set, patience):
    held_out = DataLoader(val_set, sampler=DistributedSampler(val_set))
    best, bad = 1e9, 0
    for epoch in range(10):
        train_epoch(model, train)
        val_loss = evaluate(model, held_out)
        bad = 0 if val_loss < best else bad + 1
        if bad > patience:
            break
def second(model, train, val_batches, limit, rank):
    for epoch in range(10):
        train_epoch(model, train)
        val_loss = sum(model(batch) for batch in val_batches)
        box = [val_loss > limit if rank == 0 else None]
        dist.broadcast_object_list(box)
        if box[0]:
            break
