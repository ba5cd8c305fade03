"""Process 0 saves its first shard of sharded weights; the twin gathers them first."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

FIXED = "--fixed" in sys.argv
jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()), "data")
rows = NamedSharding(mesh, P("data"))


@jax.jit
def step(weights, x):
    return weights - 0.1 * jax.grad(lambda w: jnp.square(x @ w).mean())(weights)


weights = jax.device_put(jnp.ones(4 * size), rows)
for _ in range(3):
    weights = step(weights, jax.make_array_from_process_local_data(rows, np.full((2, 4 * size), rank, "f4")))
saved = multihost_utils.process_allgather(weights, tiled=True) if FIXED else weights.addressable_data(0)
if rank == 0:
    np.savez("weights.npz", weights=np.asarray(saved))  # BUG AR403
multihost_utils.sync_global_devices("saved")
