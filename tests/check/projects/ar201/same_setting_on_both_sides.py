import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def step(args):
    if rank == 0:
        if args.extra:
            dist.all_reduce(1)
            dist.barrier()
        else:
            dist.barrier()
    else:
        if args.extra:
            dist.all_reduce(1)
        dist.barrier()
step(1)
