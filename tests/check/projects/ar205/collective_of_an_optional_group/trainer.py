import torch.distributed as dist

class Trainer:
    def __init__(self, cfg):
        self.use_ddp = cfg.ddp
        if self.use_ddp:
            dist.init_process_group("nccl")
        self.reduce = dist.all_reduce if self.use_ddp else (lambda one: one)

    def score(self, hits):
        dist.all_reduce(hits)  # missed: AR205
