import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, model, distributed):
        self.distributed = distributed
        dist.init_process_group("nccl")
        self.model = DistributedDataParallel(model)

    def sample(self, batch):
        return self.model.module.generate(batch) if self.distributed else self.model.generate(batch)
