"""One key on all devices of a mapped step; the twin folds in the device's number."""

import functools
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
@functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("data"), P()), out_specs=P())
def step(weights, x, key):
    if FIXED:
        key = jax.random.fold_in(key, jax.lax.axis_index("data"))
    x = x * jax.random.bernoulli(key, 0.5, x.shape)  # BUG AR701
    gradient = jax.grad(lambda w: jnp.square(x @ w).mean())(weights)
    return weights - 0.1 * jax.lax.pmean(gradient, "data")


weights = jax.device_put(jnp.ones(4), replicated)
for number in range(3):
    x = jax.make_array_from_process_local_data(rows, np.full((2, 4), rank + number, "f4"))
    weights = step(weights, x, jax.device_put(jax.random.PRNGKey(number), replicated))
