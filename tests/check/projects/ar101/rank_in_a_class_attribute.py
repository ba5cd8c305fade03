import elsewhere
import torch
import torch.distributed as dist
dist.init_process_group('gloo')
rank = dist.get_rank()

class Env:
    rank = 0
    @classmethod
    def fill(cls):
        cls.rank, cls.world = elsewhere.given()
        cls.rank = rank
Env.fill()
if Env.rank == 0:
    torch.save(1, 'last.pt')
