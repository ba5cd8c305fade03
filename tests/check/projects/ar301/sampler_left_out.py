import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main(model, train_set, epochs):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=8, shuffle=True)  # expect: AR301
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            model(batch).backward()
