import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model, optimizer, loader, resume):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model)
    if resume and dist.get_rank() == 0:
        state = torch.load(resume, map_location="cpu")
        model.load_state_dict(state["model"])  # expect: AR703
        optimizer.load_state_dict(state["optimizer"])
    for batch in loader:
        model(batch).backward()
