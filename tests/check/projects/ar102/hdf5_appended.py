import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
import h5py
h5py.File('data.h5', 'a')  # low: AR102
