import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Saver:
    def __init__(self):
        self.saved = []
    def save(self, epoch):
        dist.barrier()
        self.saved.append(f'{epoch}.pt')
        while len(self.saved) > 3:
            os.remove(self.saved.pop(0))  # missed: AR109
