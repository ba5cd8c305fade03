import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()

class Trainer:
    def __init__(self):
        self.mesh = Mesh(np.array(jax.devices()), ('dp',))
        self._unshard = jax.jit(lambda tree: tree, out_shardings=NamedSharding(self.mesh, P()))

    def _params_for_host(self):
        return jax.tree.map(np.asarray, self._unshard(self.params))

    def save(self, step):
        if jax.process_index() != 0:
            return
        write(self._params_for_host(), step)  # expect: AR204

Trainer().save(1)
