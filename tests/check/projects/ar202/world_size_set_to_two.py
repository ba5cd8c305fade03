import os
import torch.distributed as dist

def export(x):
    if int(os.environ.get("RANK", 0)) != 0:
        return
    os.environ["WORLD_SIZE"] = "2"
    dist.init_process_group("gloo")  # expect: AR202
    dist.all_reduce(x)

export(1)
