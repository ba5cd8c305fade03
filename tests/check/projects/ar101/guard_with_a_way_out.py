import torch
import torch.distributed as dist

dist.init_process_group("nccl")


def save(args):
    rank = dist.get_rank()
    if rank == 0 or args.alone:
        torch.save({}, "a.pt")
    if not (rank == 0 or args.alone):
        return
    torch.save({}, "b.pt")


def save_all(args):
    if dist.get_rank() >= 0:
        torch.save({}, "c.pt")  # expect: AR101


save(args)
save_all(args)
