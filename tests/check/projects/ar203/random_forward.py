import random
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def look(model, batch):
    return model(batch)

class Experiment:
    def __init__(self, net):
        dist.init_process_group("nccl")
        self.model = DDP(net)

    def loss(self, batch):
        if random.random() > 0.5:
            if batch is not None:
                batch = look(self.model, batch)  # expect: AR203
        return self.model(batch)

Experiment(torch.nn.Linear(2, 2)).loss(torch.ones(2))
