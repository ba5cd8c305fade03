import torch.distributed as dist
from engines import Engine, Events
def train(rank):
    engine = Engine()
    @engine.on(Events.END)
    def end(_):
        if rank == 0:
            dist.barrier()  # missed: AR201
    engine.run()
