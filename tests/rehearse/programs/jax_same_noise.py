"""Each process adds the same noise to its own rows; in the twin the key depends on the process."""

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
key = jax.random.key(0)
if FIXED:
    key = jax.random.fold_in(key, rank)
for number in range(5):
    key, draw = jax.random.split(key)
    local = np.full((2, 4), rank + number, "f4")
    local = local + np.asarray(jax.random.normal(draw, local.shape))  # BUG AR701
    weights = step(weights, jax.make_array_from_process_local_data(rows, local))
