import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world_size, out):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    with open(out + f"/samples_{rank}.txt", "w") as f:
        f.write("a")


def main(args):
    if args.gpus == 1:
        work(rank=0, world_size=1, out=args.out)
    else:
        mp.spawn(work, args=(args.gpus, args.out), nprocs=args.gpus)


main(get_args())
