import os
import sys
import torch.distributed as dist

def train(folder, options):
    if not os.path.exists(folder):
        os.makedirs(folder)  # expect: AR108

dist.init_process_group("nccl")
options = read(sys.argv)
out = options.out
if dist.get_rank() == 0:
    os.makedirs(out, exist_ok=True)
train(out, options)
