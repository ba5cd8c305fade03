import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

from dataclasses import dataclass
@dataclass
class Run:
    folder: str | None = None
    @classmethod
    def begin(cls, folder):
        dist.barrier()
        return cls(folder=folder)
    def save(self):
        if self.folder is not None:
            torch.save({}, self.folder + '/last.pt')  # expect: AR101
Run.begin('out').save()
