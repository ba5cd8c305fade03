import sys
import torch.distributed as dist


class Log:
    def __init__(self, where):
        self.file = open(where, "w") if isinstance(where, str) else where


dist.init_process_group("nccl")
screen = Log(sys.stdout)
if dist.get_rank() == 0:
    log = Log("log.txt")
