import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset


class Windows(IterableDataset):
    def __init__(self, tokens, batch, seed):
        self.tokens, self.batch, self.seed = tokens, batch, seed
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def __iter__(self):
        order = np.random.default_rng(self.seed).permutation(len(self.tokens))  # expect: AR301
        for k in range(len(order) // (self.batch * self.world)):
            yield torch.from_numpy(self.tokens[order[k * self.batch : (k + 1) * self.batch]])


dist.init_process_group("nccl")
for batch in DataLoader(Windows(np.arange(100), 4, 0)):
    batch.backward()
