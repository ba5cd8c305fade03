import torch
import torch.distributed as dist

def main(batches):
    dist.init_process_group("nccl")
    filled = []
    fill(filled, batches)
    if filled:
        torch.save(batches, "seen.pt")  # expect: AR101

main(load())
