import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def fit(model, loader, optimizer, args):
    model = DDP(model)
    for step, batch in enumerate(loader):
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        value = loss.detach()
        if not torch.isfinite(value).all():
            dist.barrier()  # expect: AR203
