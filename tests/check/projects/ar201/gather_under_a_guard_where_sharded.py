import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
def save(model):
    torch.save(model.state_dict(), "last.pt")
def train(run, rank, model):
    model = FSDP(model) if run.enable_fsdp else model
    if run.enable_fsdp:
        if rank == 0:
            save(model)  # expect: AR201
    else:
        save(model)
        if rank == 0:
            print("saved by all")
    dist.barrier()
def main(run):
    dist.init_process_group("nccl")
    train(run, dist.get_rank(), torch.nn.Linear(2, 2))
