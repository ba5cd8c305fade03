import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def first(args):
    if args.wait and rank == 0:
        dist.barrier()
    print('works')
    if args.wait and rank != 0:
        dist.barrier()
first(1)
