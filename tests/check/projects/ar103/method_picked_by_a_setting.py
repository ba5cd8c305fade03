import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("nccl")

class Plain:
    def train(self, model):
        print(model)

class Boarded:
    def train(self, model):
        self.writer = SummaryWriter("runs")  # expect: AR103

trainer = {"plain": Plain, "boarded": Boarded}[CONFIG.kind]()
trainer.train(CONFIG.model)
