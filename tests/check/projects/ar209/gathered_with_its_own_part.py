import torch
import torch.distributed as dist


def gather(part):
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part)
    parts[dist.get_rank()] = part  # for its gradient
    return torch.cat(parts)


def fit(rows):
    for _ in range(9):
        mine = rows[dist.get_rank() :: dist.get_world_size()]
        if gather(mine).mean() < 1:
            break


dist.init_process_group("nccl")
fit(rows)
