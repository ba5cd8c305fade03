import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(4, 4)
        fully_shard(self.model)

    def evaluate(self, x):
        return self.model(x)

    def train(self, data):
        for x in data:
            self.model(x).sum().backward()
            if dist.get_rank() == 0:
                self.evaluate(x)  # expect: AR204


dist.init_process_group("nccl")
Trainer().train([])
