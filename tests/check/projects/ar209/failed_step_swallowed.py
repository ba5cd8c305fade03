import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.opt = DistributedDataParallel(model), optimizer

    def step(self, x):
        loss = self.model(x).mean()
        loss.backward()
        self.opt.zero_grad()
        return loss.detach()

    def run_epoch(self, loader):
        for i, x in enumerate(loader):
            try:
                loss = self.step(x)  # expect: AR209
            except Exception as e:
                continue
            print(i, loss)
