import os
import sys
import torch.distributed as dist

def train(folder, options):
    if not os.path.exists(folder):
        os.makedirs(folder)  # false: AR108

dist.init_process_group("nccl")
options = read(sys.argv)
out = options.out
os.makedirs(out, exist_ok=True)
train(out, options)
