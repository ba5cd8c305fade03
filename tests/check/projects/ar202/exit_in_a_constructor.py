import os
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
class Setup:
    def __init__(self, rank):
        if rank > 0:
            self.leave()
    def leave(self):
        print("bye")
        os._exit(0)
def prepare():
    Setup(rank)
    print("alone")
prepare()
dist.barrier()  # expect: AR202
