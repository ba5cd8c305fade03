import torch.distributed as dist
import data


def run_epoch(model, train_loader, val_loader):
    for batch in train_loader:
        model(batch).backward()
    total = 0
    for batch in val_loader:
        total += model(batch).item()
    return total / len(val_loader)


def summed(loss):
    dist.all_reduce(loss)
    return loss


def main(model, rows, rank):
    if rank != -1:
        raise ValueError("one process")
    dist.init_process_group("nccl")
    run_epoch(model, data.setup(rows), data.setup(rows))


main(1, 2)
