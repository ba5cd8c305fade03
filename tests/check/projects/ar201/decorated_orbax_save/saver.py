import functools
import orbax.checkpoint as ocp
from jax import process_index
def lead_only(call):
    @functools.wraps(call)
    def inner(*args, **kwargs):
        if process_index() == 0:
            return call(*args, **kwargs)
    return inner
class Saver:
    def __init__(self, folder):
        self.manager = ocp.CheckpointManager(folder)
    @lead_only
    def note(self, step):
        print(step)
    @lead_only
    def keep(self, step):
        self.manager.save(step)  # missed: AR201
    def close(self):
        self.manager.close()
