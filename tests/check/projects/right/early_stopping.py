import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

def main(model, loader, val):
    bad, best = 0, 1e9
    for epoch in range(10):
        total = torch.zeros(2).cuda()
        for x in val:
            total += torch.tensor([model(x).mean().item(), 1.0]).cuda()
        dist.all_reduce(total)
        score = (total[0] / total[1]).item()
        if score < best:
            best, bad = score, 0
            if rank == 0:
                torch.save(model.state_dict(), 'best.pt')
        else:
            bad += 1
        if bad > 3:
            break
        for x in loader:
            model(x).mean().backward()
main(DDP(torch.nn.Linear(2, 2).cuda()), [], [])
