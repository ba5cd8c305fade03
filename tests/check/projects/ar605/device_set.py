import torch
import torch.distributed as dist
from torch.multiprocessing import spawn

def worker(local_rank, node, args):
    device = torch.device("cuda", local_rank)
    torch.cuda.device(device); torch.cuda.set_device(device)
    dist.init_process_group(args.backend, rank=node * 8 + local_rank, world_size=args.size)
    dist.barrier()

def main(args):
    spawn(worker, args=(args.node, args), nprocs=8)
