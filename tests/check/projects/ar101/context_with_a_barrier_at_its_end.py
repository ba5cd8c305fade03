import torch
import torch.distributed as dist

dist.init_process_group("nccl")

import contextlib

@contextlib.contextmanager
def then_all():
    yield dist.get_rank() == 0
    dist.barrier()

with then_all() as lead:
    torch.save({}, "all.pt")  # expect: AR101
    if lead:
        torch.save({}, "one.pt")
