"""Each process puts weights of its own on all devices as replicas; the twin has one seed."""

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


local = jnp.asarray(np.random.default_rng(0 if FIXED else rank).normal(size=4).astype("f4"))
parts = [jax.device_put(local, device) for device in jax.local_devices()]
weights = jax.make_array_from_single_device_arrays((4,), replicated, parts)
for _ in range(3):
    x = jax.make_array_from_process_local_data(rows, np.full((2, 4), rank, "f4"))
    weights = step(weights, x)  # BUG AR702
