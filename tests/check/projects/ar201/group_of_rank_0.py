import torch.distributed as dist
from serving import join_engines

def send(x, group):
    if dist.get_rank() == 0:
        dist.broadcast(x, 0, group=group)

class Sender:
    def __init__(self):
        self.group = None
        if dist.get_rank() == 0:
            self.group = join_engines(rank=0)

    def run(self, x):
        send(x, self.group)
        dist.barrier()

dist.init_process_group("nccl")
Sender().run(1)
