import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()

def keep(state, args):
    if rank == 0:
        torch.save(state, args.out)
def look(args):
    if rank == 0:
        return torch.load(args.out)
def main(args):
    keep({}, args)
    look(args)
main(read_args())
