import torch

class NanGuard:
    def __init__(self, accelerator):
        self.accelerator = accelerator

    def bad(self, loss):
        flag = (~torch.isfinite(loss)).float()
        return self.accelerator.reduce(flag, reduction="sum").item() > 0
