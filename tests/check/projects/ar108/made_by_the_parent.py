import os
import sys
import torch.distributed as dist

import torch.multiprocessing as mp
def work(rank, args):
    dist.init_process_group("nccl", rank=rank)
    if not os.path.exists(args.out):
        os.makedirs(args.out)

def main(args):
    os.makedirs(args.out, exist_ok=True)
    mp.spawn(work, args=(args,), nprocs=8)

main(sys.argv)
