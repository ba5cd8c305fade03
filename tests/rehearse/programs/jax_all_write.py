"""Every process writes the weights; in the twin process 0 does."""

import pickle
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

for _ in range(3):
    weights = step(weights, jax.make_array_from_process_local_data(rows, np.full((2, 4), rank, "f4")))
if rank == 0 or not FIXED:
    with open("weights.pkl", "wb") as file:  # BUG AR101
        pickle.dump(np.asarray(weights.addressable_data(0)), file)
