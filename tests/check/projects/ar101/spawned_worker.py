import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")

def work(rank):
    torch.save({}, "last.pt")  # expect: AR101

if __name__ == "__main__":
    if int(os.environ["NODE_RANK"]) == 0:
        open("config.txt", "w").write("x")
    torch.multiprocessing.spawn(work, nprocs=8)
