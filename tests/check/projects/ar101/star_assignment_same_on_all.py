import torch
import torch.distributed as dist

dist.init_process_group("nccl")
own, *others, of = dist.get_rank(), 1, 2
torch.save(1, f"{of}.pt")  # expect: AR101
