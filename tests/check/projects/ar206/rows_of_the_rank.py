import torch.distributed as dist
def main(files):
    rank, world = dist.get_rank(), dist.get_world_size()
    for file in [f for i, f in enumerate(files) if i % world == rank]:
        dist.all_reduce(file)  # expect: AR206
