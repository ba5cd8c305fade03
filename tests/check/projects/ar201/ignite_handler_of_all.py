import torch.distributed as dist
from engines import Engine, Events
def train(rank):
    engine = Engine()
    @engine.on(Events.END)
    def end(_):
        dist.barrier()
        if rank == 0:
            print('end')
    engine.run()
