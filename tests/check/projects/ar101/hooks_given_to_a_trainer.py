import torch
import torch.distributed as dist

dist.init_process_group("nccl")

class Keep:
    def after_epoch(self, trainer):
        torch.save(trainer.model, "last.pt")  # expect: AR101

class Trainer:
    def __init__(self, hooks):
        self.hooks = hooks

    def fit(self):
        for hook in self.hooks:
            hook.after_epoch(self)

Trainer([Keep()]).fit()
