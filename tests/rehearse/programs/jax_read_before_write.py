"""Process 0 writes the settings, the others read them; the twin meets in between."""

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
rows, replicated = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())


@jax.jit
def step(weights, x):
    return weights - 0.1 * jax.grad(lambda w: jnp.square(x @ w).mean())(weights)


weights = jax.device_put(jnp.ones(4), replicated)

if rank == 0:
    np.save("statistics.npy", np.ones(3))
if FIXED:
    multihost_utils.sync_global_devices("written")
np.load("statistics.npy")  # BUG AR405
multihost_utils.sync_global_devices("read")
