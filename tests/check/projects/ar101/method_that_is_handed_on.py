import signal
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")


class Trainer:
    def __init__(self):
        self.model = DDP(torch.nn.Linear(2, 2))
        signal.signal(signal.SIGTERM, self.on_term)
        self.model.register_forward_hook(self.hook)

    def on_term(self, number, frame):
        torch.save(self.model.state_dict(), "preempt.pt")  # expect: AR101
        sys.exit(0)

    def hook(self, module, inputs, outputs):
        torch.save(outputs, "activations.pt")  # expect: AR101

    def never(self):
        torch.save(self.model.state_dict(), "never.pt")  # low: AR101

    def train(self):
        self.model(torch.zeros(2, 2)).sum().backward()


Trainer().train()
