import os
import torch
from store import resume
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
resume(model, torch.optim.SGD(model.parameters()), "last.pt")
