import torch
import torch.distributed as dist

def main(batches):
    dist.init_process_group("nccl")
    best = []
    for batch in batches:
        if best:
            torch.save(best, "best.pt")  # expect: AR101
        best.append(batch)

main(load())
