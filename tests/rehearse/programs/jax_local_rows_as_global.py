"""Each process gives its own rows to a program of all; the twin makes a global array."""

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
random = np.random.default_rng(rank)
for _ in range(4):
    x = random.normal(size=(2 * size, 4)).astype("f4")
    if FIXED:
        x = jax.make_array_from_process_local_data(rows, x[:2])
    weights = step(weights, x)  # BUG AR312
