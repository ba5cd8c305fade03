import tarfile
import torch.distributed as dist

dist.init_process_group('nccl')

with tarfile.open('data.tar', 'r:xz') as tar:  # false: AR102
    print(tar.getnames())
