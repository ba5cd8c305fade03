import torch.distributed as dist

dist.init_process_group('nccl')
from keepers import make

keeper = make(open('s').read())
keeper.keep({})
