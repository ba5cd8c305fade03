import os

import numpy as np
import torch.distributed as dist


def index(path, rows):
    if dist.get_rank() == 0 and not os.path.exists(path):
        np.save(path + ".part.npy", rows)
        os.replace(path + ".part.npy", path)
    return np.load(path)  # expect: AR405
