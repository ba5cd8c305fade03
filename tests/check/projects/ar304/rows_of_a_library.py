import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Prompts:
    def part(self, rank, world):
        for i, row in enumerate(self.rows):
            if i % world == rank:
                yield row


dist.init_process_group("nccl")
prompts, model = library.Prompts(), DDP(net)
for row in prompts.part(dist.get_rank(), dist.get_world_size()):
    model(row).backward()
