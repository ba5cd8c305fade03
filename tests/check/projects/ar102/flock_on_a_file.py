import fcntl

import torch.distributed as dist

def fetch(path):
    with open(path + ".guard", "w") as file:  # false: AR102
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        print(path)

dist.init_process_group("nccl")
fetch("x")
