import os
import torch.distributed as dist

dist.init_process_group('nccl')
os.system('wget -O data.zip ' + url)  # expect: AR106
