import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
from flax.training import checkpoints
checkpoints.save_checkpoint('out', {}, 3, prefix='host_')  # expect: AR101
