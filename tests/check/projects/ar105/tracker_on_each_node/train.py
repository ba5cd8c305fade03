import os
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("nccl")

if dist.get_rank() == 0:
    print("start")
if int(os.environ["LOCAL_RANK"]) == 0:
    SummaryWriter("runs")  # expect: AR105
