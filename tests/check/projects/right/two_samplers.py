import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

def loaders(train_rows, val_rows):
    train_sampler = DistributedSampler(train_rows, shuffle=True, seed=0)
    val_sampler = DistributedSampler(val_rows, shuffle=False)
    train = DataLoader(train_rows, 8, sampler=train_sampler, drop_last=True)
    return train, DataLoader(val_rows, 8, sampler=val_sampler), train_sampler

def main(train_rows, val_rows):
    model = DDP(torch.nn.Linear(2, 2).cuda())
    train, val, sampler = loaders(train_rows, val_rows)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for batch in train:
            model(batch).mean().backward()
        total = torch.zeros(2).cuda()
        with torch.no_grad():
            for batch in val:
                total += torch.stack([model(batch).mean(), torch.ones((), device='cuda')])
        dist.all_reduce(total)
        if rank == 0:
            print(epoch, (total[0] / total[1]).item())

if __name__ == '__main__':
    main(read('train'), read('val'))
