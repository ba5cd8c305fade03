import os
from functools import partial
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, size):
    dist.init_process_group('gloo', rank=rank)
    print(rank)

def main():
    if not os.path.isdir("out"):
        os.makedirs("out")
    size = torch.cuda.device_count()
    for number in range(size):
        mp.Process(target=partial(work, size=size), args=(number,)).start()
    dist.barrier()

main()
