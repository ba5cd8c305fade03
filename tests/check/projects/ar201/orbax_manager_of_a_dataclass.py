import jax
import orbax.checkpoint
from dataclasses import dataclass

jax.distributed.initialize()

@dataclass
class Save:
    folder: str
    def __post_init__(self):
        self.manager = orbax.checkpoint.CheckpointManager(self.folder)
    def __call__(self, state):
        if jax.process_index() == 0:
            self.manager.save(1, state)  # expect: AR201
Save('x')(1)
