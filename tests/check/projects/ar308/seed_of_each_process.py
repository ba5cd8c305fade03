import torch
import torch.distributed as dist


def part(index, rank, world, seed):
    g = torch.Generator().manual_seed(seed)
    index = index[torch.randperm(index.numel(), generator=g)]  # expect: AR308
    return index[rank::world]


dist.init_process_group("gloo")
part(torch.arange(8), dist.get_rank(), dist.get_world_size(), torch.initial_seed())
