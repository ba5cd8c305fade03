import torch
import torch.distributed as dist

dist.init_process_group("nccl")

def keep(state):
    torch.save(state, "last.pt")  # expect: AR101

class Trainer:
    def __init__(self, saving):
        self.saving = saving

    def go(self):
        self.saving({})

Trainer(saving=keep).go()
