"""The same without a plugin, as most projects write it: each test spawns its own ranks."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZE = 4


def check(rank, number, address):
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=SIZE)
    mine = torch.full((1,), float(number))
    dist.all_reduce(mine)
    assert mine.item() == SIZE * number
    dist.destroy_process_group()


if __name__ == "__main__":
    for number in range(int(os.environ["BENCH_TESTS"])):
        meeting = f"file://{os.environ['BENCH_OUT']}/meet-{number}"
        mp.spawn(check, args=(number, meeting), nprocs=SIZE)
