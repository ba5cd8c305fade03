import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def named(root):
    return os.path.join(root, f"run_{os.environ['JOB']}")


def main(model, loader, root):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    out = named(root)
    if rank == 0:
        os.makedirs(os.path.join(out, "episodes"))
    dist.barrier()
    told = open(os.path.join(out, "episodes", f"rank{rank}.csv"), "w")
    model = DDP(model)
    for batch in loader:
        model(batch).mean().backward()
    told.close()


main(torch.nn.Linear(3, 3), [], "runs")
