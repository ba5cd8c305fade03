import torch.distributed as dist


def wait():
    if dist.is_initialized():
        dist.barrier()


wait()
open("log.json", "w").write("{}")  # low: AR102
