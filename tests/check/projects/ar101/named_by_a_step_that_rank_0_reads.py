import torch
import torch.distributed as dist

dist.init_process_group('nccl')
class T:
    def __init__(self):
        self.global_step = 0
        if dist.get_rank() == 0:
            self.global_step = torch.load('a')['step']

    def save(self):
        torch.save({}, f'{self.global_step}.pt')  # missed: AR101

T().save()
