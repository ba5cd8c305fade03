import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def mean(x, args):
    if args.distributed:
        dist.all_reduce(x)
def evaluate(args):
    mean(1, args)
def main(args):
    if rank == 0:
        evaluate(args)  # expect: AR201
main(1)
