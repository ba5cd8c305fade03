import json
import torch.distributed as dist
import torch.multiprocessing as mp
def train(rank, epoch, writers, out):
    if writers is not None:
        writers[0].write(epoch)
    json.dump([], open(f"{out}/history.json", "w"))  # expect: AR102
def run(rank):
    dist.init_process_group("nccl", rank=rank, world_size=4)
    for epoch in range(10):
        if rank == 0:
            train(rank, epoch, [open("log.txt", "w")], "out")
        else:
            train(rank, epoch, None, "out")
mp.spawn(run, nprocs=4)
