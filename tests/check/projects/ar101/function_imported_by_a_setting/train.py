import torch.distributed as dist

dist.init_process_group('nccl')
def run(args):
    if args.plain:
        from plain import save
    else:
        from pickled import save
    save(args)

run(object())
