import torch.distributed as dist

dist.init_process_group('nccl')
import os

class Store:
    def __init__(self):
        self.fill()
    def fill(self):
        if os.environ.get('TORCHELASTIC_RUN_ID') is not None:
            dist.barrier()

def save():
    return Store()

def end():
    if dist.get_rank() == 0:
        save()  # expect: AR201
