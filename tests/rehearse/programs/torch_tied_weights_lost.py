"""Weights that the model shares are no longer shared after to_empty; the twin shares them again."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
with torch.device("meta"):
    model = Model()
model.to_empty(device="cpu")  # BUG AR016
for parameter in model.parameters():
    torch.nn.init.normal_(parameter)
if FIXED:
    model.head.weight = model.embedding.weight
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(4):
    x = torch.randint(0, 16, (4, 5))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
    optimizer.step()
dist.destroy_process_group()
