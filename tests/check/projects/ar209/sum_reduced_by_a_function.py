import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def main(ds, held, optimizer):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 4))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    val = DataLoader(held, batch_size=8, sampler=DistributedSampler(held, shuffle=False))
    best, patience = 1e9, 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x in loader:
            model(x).mean().backward()
            optimizer.step()
        vl = 0.0
        with torch.no_grad():
            for x in val:
                vl += model(x).mean().item()
        vl = mean_over_ranks(vl)
        if vl < best:
            best, patience = vl, 0
        else:
            patience += 1
        if patience >= 3:
            break
