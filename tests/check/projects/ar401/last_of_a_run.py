import os

import torch
import torch.distributed as dist


def main(args, model, optimizer):
    dist.init_process_group("nccl")
    if args.resume:
        model.load_state_dict(torch.load(args.resume)["net"])
    for epoch in range(args.epochs):
        if dist.get_rank() == 0:
            path = os.path.join(args.out, "last.pth")
            torch.save({"net": model.state_dict(), "optimizer": optimizer.state_dict()}, path)  # expect: AR401
