"""A resumed run has its weights, and reads the data from the start; the twin goes on where it was."""

import os
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


corpus = np.random.default_rng(0).normal(size=(64, size, 2, 4)).astype("f4")
weights, done = np.ones(4, "f4"), 0
if os.path.exists("last.npz"):
    saved = np.load("last.npz")
    weights, done = saved["weights"], int(saved["step"])
multihost_utils.sync_global_devices("read")
weights = jax.device_put(weights, replicated)
for number in range(done, 16):
    batch = corpus[number if FIXED else number - done, rank]
    x = jax.make_array_from_process_local_data(rows, batch)  # BUG AR311
    weights = step(weights, x)
    if number % 4 == 3:
        local = np.asarray(weights.addressable_data(0))
        if rank == 0:
            np.savez("next.npz", weights=local, step=number + 1)
            os.replace("next.npz", "last.npz")
        multihost_utils.sync_global_devices(f"saved {number}")
