import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(gpu, args):
    rank = args.node * 8 + gpu
    dist.init_process_group("nccl", rank=rank, world_size=args.nodes * 8)
    if gpu == 0:
        torch.save({}, "last.pt")  # low: AR105
    if rank == 0:
        torch.save({}, "best.pt")


mp.spawn(work, args=(parse(),), nprocs=8)
