"""SIGTERM ends it without a save, and a full disk is not shown; the twin saves at SIGTERM, and fails on a full disk."""

import os
import signal
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
notices = []
if FIXED:
    signal.signal(signal.SIGTERM, lambda *_: notices.append(1))


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
    x = jax.make_array_from_process_local_data(rows, corpus[number, rank])
    weights = step(weights, x)  # BUG AR022
    stop = bool(multihost_utils.process_allgather(np.array(len(notices))).any())
    if number % 5 == 4 or stop:
        local = np.asarray(weights.addressable_data(0))
        if rank == 0:
            try:
                np.savez("next.npz", weights=local, step=number + 1)  # BUG AR021
                os.replace("next.npz", "last.npz")
            except OSError:
                if FIXED:
                    raise
        multihost_utils.sync_global_devices(f"saved {number}")
    if stop:
        sys.exit(143)
