import torch
import torch.distributed as dist

def main(args):
    if args.distributed:
        dist.init_process_group("nccl")
    stop = torch.zeros(1) if args.patience else None
    for epoch in range(9):
        train(epoch)
        if stop is not None:
            dist.broadcast(stop, src=0)  # missed: AR205
