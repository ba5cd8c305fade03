import torch
import torch.distributed as dist

def main(batches):
    dist.init_process_group("nccl")
    losses = []
    for batch in batches:
        if batch.ok:
            losses.append(batch)
    if not losses:
        return
    torch.save(losses, "losses.pt")  # expect: AR101

main(load())
