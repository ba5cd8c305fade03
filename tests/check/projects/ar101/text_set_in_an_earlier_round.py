import torch
import torch.distributed as dist

def main(batches):
    dist.init_process_group("nccl")
    name = ''
    for batch in batches:
        if name:
            torch.save(batches, "seen.pt")  # expect: AR101
        name = batch.name

main(load())
