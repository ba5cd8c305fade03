import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("nccl")

class Board:
    def __init__(self, cfg):
        self.writer = SummaryWriter(cfg.out)  # expect: AR103

class Lines:
    def __init__(self, cfg):
        self.file = open(cfg.out / "log.txt", "w")

KINDS = {"board": Board, "lines": Lines}

def build(cfg):
    return KINDS[cfg.kind](cfg)

build(CONFIG)
