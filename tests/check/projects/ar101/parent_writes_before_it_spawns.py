import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def worker(rank, path):
    dist.init_process_group("nccl")
    torch.save({}, path)  # expect: AR101

def main():
    torch.save({}, "before.pt")
    mp.spawn(worker, args=("a.pt",), nprocs=2)

if __name__ == "__main__":
    main()
