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
        Train.begin(Train())
    def make_writer(self):
        if dist.get_rank() != 0: return
        super().make_writer()
