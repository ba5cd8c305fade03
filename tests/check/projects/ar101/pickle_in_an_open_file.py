import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
import pickle
with open('m', 'wb') as f:
    pickle.dump({}, f)  # expect: AR101
