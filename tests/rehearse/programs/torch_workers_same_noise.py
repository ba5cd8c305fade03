"""Workers of a loader are seeded by torch's seed, which is the same on all ranks; the twin adds the rank."""

import sys

import numpy as np
import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)


class Data(torch.utils.data.Dataset):
    rows = torch.arange(256.0).reshape(64, 4)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] * float(np.random.uniform(0.5, 1.5))  # BUG AR701


sampler = torch.utils.data.DistributedSampler(Data())
torch.manual_seed(7 + (rank if FIXED else 0))
loader = torch.utils.data.DataLoader(Data(), batch_size=4, sampler=sampler, num_workers=1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x in loader:
        optimizer.zero_grad()
        (model(x).square().mean() / 1e4).backward()
        optimizer.step()
dist.destroy_process_group()
