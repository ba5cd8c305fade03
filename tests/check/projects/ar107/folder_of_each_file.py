import glob
import os
import torch.distributed as dist

dist.init_process_group("nccl")
paths = sorted(glob.glob("data/*.tar"))
for path in paths:
    os.makedirs(path[:-4], exist_ok=True)
