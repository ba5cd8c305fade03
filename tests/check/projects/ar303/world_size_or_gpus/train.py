import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
import settings
def main():
    dist.init_process_group("gloo")
    host = settings.Host()
    sampler = DistributedSampler([1], num_replicas=host.gpus, rank=dist.get_rank())
    for row in DataLoader([1], sampler=sampler):
        dist.all_reduce(row)
main()
