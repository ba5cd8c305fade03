import torch
import torch.distributed as dist
dist.init_process_group('nccl')
import argparse
def main(args):
    args.writer = dist.get_rank() == 0
    save(args)
def save(args):
    if args.writer:
        torch.save({}, 'a.pt')
main(argparse.ArgumentParser().parse_args())
