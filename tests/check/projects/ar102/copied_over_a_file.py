import shutil
import torch.distributed as dist

dist.init_process_group('nccl')
shutil.copyfile('last.json', 'all.json')  # expect: AR102
