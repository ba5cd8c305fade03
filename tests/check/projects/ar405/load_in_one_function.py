import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    torch.save({}, "a.pt")
x = torch.load("a.pt")  # expect: AR405
