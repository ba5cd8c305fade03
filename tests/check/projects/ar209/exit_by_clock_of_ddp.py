import sys
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Learner:
    def __init__(self, model):
        self.model = DDP(model)
        self.opt = torch.optim.AdamW(self.model.parameters())

    def train(self, epochs, loader):
        t0 = time.time()
        for epoch in range(epochs):
            for batch in loader:
                loss = self.model(batch).mean()  # expect: AR209
                loss.backward()
                self.opt.step()
                if time.time() - t0 > 3600:
                    sys.exit(0)


def main():
    dist.init_process_group("nccl")
    Learner(torch.nn.Linear(16, 16)).train(10, torch.randn(1000, 16))


main()
