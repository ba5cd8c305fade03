import torch.distributed as dist

class Log:
    def __init__(self, path):
        self.file = open(path, "a")  # low: AR102
class Quiet:
    def __init__(self, path):
        self.file = None
dist.init_process_group("nccl")
kind = Log if args.verbose else Quiet
kind("log.csv")
