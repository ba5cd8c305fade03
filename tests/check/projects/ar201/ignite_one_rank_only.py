import ignite.distributed as idist
from ignite.engine import Engine, Events
def train():
    engine = Engine()
    @engine.on(Events.END)
    @idist.one_rank_only()
    def end(_):
        idist.barrier()  # missed: AR201
    engine.run()
