import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def build_loader(ds, bs, flag):
    sampler = DistributedSampler(ds, shuffle=flag)  # low: AR302
    return DataLoader(ds, bs, sampler=sampler)


def main(ds, args, step):
    dist.init_process_group("nccl")
    loader = build_loader(ds, 32, args.flag)
    held = build_loader(args.held, 32, args.held)
    for epoch in range(30):
        for batch in loader:
            step(batch)
