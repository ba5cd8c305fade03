import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Output:
    def __init__(self, folder, mute):
        self.folder, self.mute = folder, mute
    @classmethod
    def create(cls, folder):
        dist.barrier()
        return cls(folder, mute=False)
    def save(self):
        if self.mute:
            return
        torch.save({}, self.folder + '/last.pt')  # expect: AR101
out = Output.create('out')
out.save()
