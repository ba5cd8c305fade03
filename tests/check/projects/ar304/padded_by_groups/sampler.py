import torch.distributed as dist
def mine(groups):
    rank, count = dist.get_rank(), dist.get_world_size()
    chosen = []
    for rows in groups:
        rows = rows + (rows * count)[: -len(rows) % count]
        chosen.append(rows[rank::count])
    return chosen
