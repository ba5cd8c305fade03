import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()

import ignite.distributed as idist
def main(args):
    if idist.get_rank() == 0:
        torch.save({}, args.out)
    idist.barrier()
    torch.load(args.out)
main(read_args())
