import torch
import torch.distributed as dist

dist.init_process_group("nccl")

step = 0
while True:
    if step > 0:
        torch.save({}, "last.pt")  # expect: AR101
    step += 1
