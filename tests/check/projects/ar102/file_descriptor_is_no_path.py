import sys
import torch.distributed as dist
dist.init_process_group("nccl")
sys.stdout = open(sys.stdout.fileno(), mode="w", buffering=1)  # false: AR102
open(2, "w")
open("2", "w")  # expect: AR102
