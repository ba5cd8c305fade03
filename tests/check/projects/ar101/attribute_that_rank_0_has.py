import torch
import torch.distributed as dist
from torch.optim.swa_utils import AveragedModel
class Trainer:
    def __init__(self, model, swa):
        if swa and dist.get_rank() == 0:
            self.average = AveragedModel(model)
    def save(self):
        if not hasattr(self, "average"):
            return
        state = {}
        torch.save(state, "average.pt")
dist.init_process_group("nccl")
Trainer(torch.nn.Linear(1, 1), True).save()
