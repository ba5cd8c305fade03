import torch
import torch.distributed as dist

dist.init_process_group("nccl")

class Average:
    def __init__(self):
        self.shadow = None

    def update(self, model):
        self.shadow = {k: v.clone() for k, v in model.items()}

    def finish(self):
        if self.shadow is not None:
            torch.save(self.shadow, "ema.pt")  # expect: AR101

average = Average()
average.update({})
average.finish()
