import torch.distributed as dist

dist.init_process_group("nccl")
world, rank = dist.get_world_size(), dist.get_rank()
for first in range(0, world, 4):
    ranks = list(range(first, first + 4))
    if rank in ranks:
        mine = dist.new_group(ranks)  # expect: AR201
for first in range(0, world, 2):
    ranks = list(range(first, first + 2))
    group = dist.new_group(ranks)
    if rank in ranks:
        pair = group
