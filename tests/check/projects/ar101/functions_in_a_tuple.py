import torch
import torch.distributed as dist

dist.init_process_group("nccl")

def keep():
    torch.save({}, "last.pt")  # expect: AR101

def rest():
    pass

for step in (rest, keep):
    step()
