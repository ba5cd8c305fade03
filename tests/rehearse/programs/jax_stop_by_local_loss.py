"""Each process ends its training by the mean of its own rows; the twin gathers it. In this run none ends early."""

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
for number in range(4):
    local = np.full((2, 4), rank + number, "f4")
    weights = step(weights, jax.make_array_from_process_local_data(rows, local))
    score = np.square(local @ np.asarray(weights.addressable_data(0))).mean()
    if FIXED:
        score = multihost_utils.process_allgather(score).mean()
    if score < -1.0:  # BUG AR209
        break
