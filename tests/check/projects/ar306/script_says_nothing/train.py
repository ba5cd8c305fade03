import os
import torch.distributed as dist

def main():
    rank, size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl", rank=rank, world_size=size)  # expect: AR306

main()
