import torch.distributed as dist
from util import is_main_process, share

def main(x):
    dist.init_process_group("nccl")
    if is_main_process():
        share(x)  # expect: AR201

main(1)
