import os
import torch.distributed as dist

def run(rank, size):
    if size > 1:
        dist.init_process_group('nccl')
    open('metrics.txt', 'w')  # expect: AR102

run(int(os.environ['RANK']), 2)
