import os
import sys
import torch.distributed as dist

def train(folder, options):
    if not os.path.exists(folder):
        os.makedirs(folder)  # expect: AR108

dist.init_process_group("nccl")
options = read(sys.argv)
out = options.out
os.makedirs(options.logs, exist_ok=True)
train(out, options)
