import torch.distributed as dist

from lightning.pytorch.utilities import rank_zero_only
def write(path):
    open(path, "a")
dist.init_process_group("nccl")
save = rank_zero_only(write)
save("log.csv")
