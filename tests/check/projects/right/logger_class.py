import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank = dist.get_rank()

from torch.utils.tensorboard import SummaryWriter
class Logger:
    def __init__(self, folder):
        self.writer = SummaryWriter(folder) if dist.get_rank() == 0 else None
    def log(self, step, **values):
        if self.writer is None:
            return
        for key, value in values.items():
            self.writer.add_scalar(key, value, step)
logger = Logger('runs')
logger.log(1, loss=2)
