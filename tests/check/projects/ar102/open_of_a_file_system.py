import torch.distributed as dist

dist.init_process_group('nccl')
def put(fs, at):
    fs.open(at, mode='wb')  # expect: AR102

put(fs, 'x.bin')
