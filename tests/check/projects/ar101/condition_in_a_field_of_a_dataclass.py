import torch
import torch.distributed as dist
dist.init_process_group('gloo')
rank = dist.get_rank()

import dataclasses
@dataclasses.dataclass
class Keeper:
    path: str
    on: bool
    def save(self):
        if self.on:
            torch.save(1, self.path)  # expect: AR101
Keeper('last.pt', rank >= 0).save()
