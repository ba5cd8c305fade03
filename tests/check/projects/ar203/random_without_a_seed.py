import random
from torch.nn.parallel import DistributedDataParallel
def fit(judge, batches, share):
    judge = DistributedDataParallel(judge)
    for batch in batches:
        train = share > 0 and random.random() < share
        if train:
            judge(batch).backward()  # expect: AR203
