"""Each process seeds by its number, and calls the result replicated; the twin seeds alike."""

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
local = np.random.default_rng(0 if FIXED else rank).normal(size=4).astype("f4")
weights = jax.make_array_from_process_local_data(replicated, local)  # BUG AR312
for _ in range(3):
    weights = step(weights, jax.make_array_from_process_local_data(rows, np.full((2, 4), rank, "f4")))
