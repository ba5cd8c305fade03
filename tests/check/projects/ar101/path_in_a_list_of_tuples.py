import torch
import torch.distributed as dist

class Writer:
    def __init__(self):
        self.finished = []

    def finish(self, run):
        self.finished.append(('last.pt', run))

    def write(self):
        while self.finished:
            path, run = self.finished.pop()
            torch.save(run, path)  # expect: AR101

dist.init_process_group("nccl")
writer = Writer()
writer.finish({})
writer.write()
