import os

import torch.distributed as dist

def fetch(path):
    with open(path + ".guard", "w") as file:  # expect: AR102
        os.fsync(file.fileno())
        print(path)

dist.init_process_group("nccl")
fetch("x")
