"""All processes make their part of the batch of the same rows; the twin draws by process."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
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
random = np.random.default_rng(rank if FIXED else 0)
for _ in range(4):
    x = jax.make_array_from_process_local_data(rows, random.normal(size=(2, 4)).astype("f4"))  # BUG AR301
    weights = step(weights, x)
