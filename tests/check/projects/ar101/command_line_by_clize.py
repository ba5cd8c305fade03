from clize import run
import torch
import torch.distributed as dist
dist.init_process_group('nccl')
def train(path='a.pt'):
    torch.save({}, path)  # expect: AR101
run([train])
