import torch.distributed as dist

def evaluate(model, loader, args):
    if not args.parallel_eval:
        if dist.get_rank() != 0:
            return
    for batch in loader:
        out = model(batch)
        if args.parallel_eval:
            dist.all_gather([], out)

def main(args, alone):
    dist.init_process_group("nccl")
    evaluate(print, [1, 2], args)
