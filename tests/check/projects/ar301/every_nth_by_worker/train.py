from rows import Rows
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

model = DistributedDataParallel(nn.Linear(2, 2))
for row in DataLoader(Rows([]), num_workers=4):
    model(row).backward()
