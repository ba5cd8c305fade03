import torch
import torch.distributed as dist

def main(batches):
    dist.init_process_group("nccl")
    filled = []
    def keep(path):
        torch.load(path)
        filled.append(path)
    batches.each(keep)
    if filled:
        torch.save(batches, "seen.pt")  # expect: AR101

main(load())
