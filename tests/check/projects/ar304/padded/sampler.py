import torch.distributed as dist
def mine(rows):
    rank, count = dist.get_rank(), dist.get_world_size()
    rows += rows[: -len(rows) % count]
    return rows[rank::count]
