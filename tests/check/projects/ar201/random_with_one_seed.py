import random
import torch.distributed as dist
def fit(sums, seed):
    random.seed(seed)
    if random.random() < 0.5:
        dist.all_reduce(sums)
    dist.reduce(sums, dst=0)
    if dist.get_rank() == 0:
        print(sums.item())
    dist.barrier()
