import os
import torch.distributed as dist

dist.init_process_group('nccl')
os.system('rm -rf {}'.format(folder))  # expect: AR109
