import torch.distributed as dist

def validate(args, parts):
    rows = parts[dist.get_rank()]
    for name in args.names:
        if dist.get_rank() != 0:
            continue
        dist.barrier()  # expect: AR202

dist.init_process_group("nccl")
validate(parse(), read())
