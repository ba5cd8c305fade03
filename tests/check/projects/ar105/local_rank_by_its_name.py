import shutil
import torch.distributed as dist
from easydict import EasyDict
from elsewhere import join

cfg = EasyDict()
cfg.local_rank = 0
dist.init_process_group('gloo')
world, cfg.local_rank = join()
if cfg.local_rank == 0:
    shutil.copy('a.yaml', 'out')  # low: AR105
