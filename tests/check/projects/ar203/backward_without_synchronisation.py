import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def fit(model, loader, optimizer):
    model = DDP(model)
    for step, batch in enumerate(loader):
        loss = model(batch).mean()
        with model.no_sync():
            if torch.isfinite(loss):
                loss.backward()
        loss.backward()
        optimizer.step()
        if torch.isfinite(loss):
            dist.barrier()  # expect: AR203
        if batch["mask"] is not None and torch.is_tensor(batch["mask"]):
            dist.all_reduce(batch["mask"])
