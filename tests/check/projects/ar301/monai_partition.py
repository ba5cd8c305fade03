import torch.distributed as dist
from monai.data import CacheDataset, DataLoader, partition_dataset
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rows, model):
    dist.init_process_group("nccl")
    world, rank = dist.get_world_size(), dist.get_rank()
    rows = partition_dataset(data=rows, num_partitions=world)[rank]
    loader = DataLoader(CacheDataset(rows), batch_size=2, shuffle=True)
    model = DDP(model)
    for batch in loader:
        model(batch).backward()


train(files(), net())
