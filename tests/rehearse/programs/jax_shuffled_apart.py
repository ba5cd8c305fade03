"""Each process shuffles with a seed of its own and takes its part; the twin shuffles with one seed."""

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


corpus = np.random.default_rng(0).normal(size=(32, 4)).astype("f4")
weights = jax.device_put(jnp.ones(4), replicated)
for epoch in range(3):
    order = np.random.default_rng(epoch if FIXED else 100 * rank + epoch).permutation(len(corpus))
    mine = order[rank::size]
    for start in range(0, len(mine), 4):
        batch = corpus[mine[start : start + 4]]
        weights = step(weights, jax.make_array_from_process_local_data(rows, batch))  # BUG AR308
