import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

class Train:
    def begin(self):
        self.make_writer()
    def make_writer(self):
        self.writer = SummaryWriter("logs")  # expect: AR103

class TrainMany(Train):
    def begin(self):
        dist.init_process_group("nccl")
        super().begin()
    def make_writer(self):
        print(1)
        super().make_writer()
