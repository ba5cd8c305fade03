import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model, loader, resume):
    dist.init_process_group("nccl")
    if resume and dist.get_rank() == 0:
        model.load_state_dict(torch.load(resume, map_location="cpu"))
    model = DistributedDataParallel(model)
    for batch in loader:
        model(batch).backward()
