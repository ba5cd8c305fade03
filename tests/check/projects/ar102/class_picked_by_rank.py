import torch.distributed as dist

class Log:
    def __init__(self, path):
        self.file = open(path, "a")
class Quiet:
    def __init__(self, path):
        self.file = None
dist.init_process_group("nccl")
kind = Log if dist.get_rank() == 0 else Quiet
kind("log.csv")
