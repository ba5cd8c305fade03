import torch.distributed as dist
import torch.multiprocessing as mp
import log


def work(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)


def main(size):
    mp.spawn(work, args=(size,), nprocs=size)


if __name__ == "__main__":
    main(8)
