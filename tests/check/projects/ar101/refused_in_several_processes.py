import torch
import torch.distributed as dist


def size():
    try:
        return dist.get_world_size()
    except RuntimeError:
        return 1


def cluster():
    assert size() == 1, "runs in one process"
    torch.save({}, "clusters.pt")


dist.init_process_group("nccl")
cluster()
