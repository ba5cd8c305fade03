import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


@torch.no_grad()
def evaluate(model, loader):
    sums = torch.zeros(2)
    for x, y in loader:
        sums += torch.stack([(model(x).argmax(1) == y).sum(), torch.tensor(len(y))])
    return {"top1": (sums[0] / sums[1]).item()}  # expect: AR310


def main(model, eval_set, log):
    dist.init_process_group("nccl")
    loader = DataLoader(eval_set, 32, sampler=DistributedSampler(eval_set))
    for epoch in range(9):
        scores = evaluate(model, loader)
        if dist.get_rank() == 0:
            log(scores)
