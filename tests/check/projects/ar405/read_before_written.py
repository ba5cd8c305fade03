import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()

def main(args):
    state = torch.load(args.out)
    if rank == 0:
        torch.save(state, args.out)
main(read_args())
