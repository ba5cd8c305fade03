import torch
import torch.distributed as dist

class Keeper:
    def __init__(self):
        self.best = ''
    def see(self, best):
        self.best = best
    def save(self):
        if self.best:
            torch.save(1, 'k')  # expect: AR101

def look(keeper, best):
    keeper.see(best)

dist.init_process_group("nccl")
keeper = Keeper()
look(keeper, load())
keeper.save()
