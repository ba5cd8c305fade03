import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def launch(worker, config, path):
    for i in range(config.processes):
        mp.get_context("spawn").Process(target=worker, args=(config.first + i, i, path)).start()

def worker(global_rank, local_rank, path):
    dist.init_process_group("nccl", rank=global_rank)
    if path:
        torch.save({}, path)  # expect: AR101

launch(worker, options().distributed, "all.pt")
