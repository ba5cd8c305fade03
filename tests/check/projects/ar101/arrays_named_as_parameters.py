import torch.distributed as dist

dist.init_process_group("nccl")
import numpy as np

np.savez(CONFIG / 'params.npz')  # expect: AR101
np.save(CONFIG / 'matrix.npy')
