import torch.distributed as dist

def evaluate(args, loader):
    if args.distributed:
        loader.sampler.set_epoch(0)
    done = go_through(loader)
    if done and dist.get_rank() == 0:  # missed: AR205
        print("some samples were left out, or seen twice")

def main(args, loader):
    if args.distributed:
        dist.init_process_group("nccl")
    evaluate(args, loader)

if __name__ == "__main__":
    main(read(), load())
