import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Trainer:
    def params(self):
        if self.sharded:
            gather()
    def save(self):
        if rank != 0:
            return
        self.params()  # expect: AR202
def gather():
    dist.all_gather([], 1)
Trainer().save()
