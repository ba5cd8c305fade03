import torch
import torch.distributed as dist
import sums
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def fit(model, rows, goal):
    dist.init_process_group("nccl")
    model, loader = DDP(model), DataLoader(rows, sampler=DistributedSampler(rows))
    for epoch in range(9):
        total = torch.zeros(2)
        for x in loader:
            loss = model(x)
            loss.backward()
            total += torch.tensor([loss.item(), 1.0])
        s, n = sums.total(total).tolist()
        if s / n < goal:
            break

if __name__ == "__main__":
    fit(make(), data(), 0.1)
