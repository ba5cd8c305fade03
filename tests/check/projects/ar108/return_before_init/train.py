import os
import torch.distributed as dist
import helpers
def make():
    if helpers.get_rank() != 0:
        return
    os.makedirs('runs')  # expect: AR108

def main():
    make()
    dist.init_process_group('nccl')

main()
