import horovod.torch as hvd
from torch.utils.data import DataLoader

optimizer = hvd.DistributedOptimizer(make(model))
loader = DataLoader(rows, sampler=data.DistributedSampler(rows, hvd.size(), hvd.rank()))
