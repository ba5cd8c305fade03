import torch.distributed as dist

dist.init_process_group("nccl")
group = dist.group.WORLD
open(f"log-{group.name()}.txt", "w")  # expect: AR102
