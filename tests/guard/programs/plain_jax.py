"""A JAX program that has never heard of allranks: ``plain_jax.py [what is wrong on rank 1 or 0]``."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

fault = sys.argv[1] if len(sys.argv) > 1 else ""
jax.distributed.initialize()
jax.config.update("jax_num_cpu_devices", 2)  # a program may set up JAX until it uses it
rank = jax.process_index()
mesh = jax.make_mesh((jax.device_count(),), ("d",))
split, alike = NamedSharding(mesh, PartitionSpec("d")), NamedSharding(mesh, PartitionSpec())
rows = jax.make_array_from_callback((jax.device_count(),), split, lambda at: np.ones(jax.device_count())[at])
value = 2.0 if fault == "replica" and rank == 1 else 1.0
weights = jax.make_array_from_callback((3,), alike, lambda _: np.full(3, value))
scale = 2.0 if fault == "value" and rank == 1 else 1.0
step = jax.jit(lambda w, x, scale: (w * x.sum() * scale).sum(), out_shardings=alike)
for number in range(16 if fault == "fewer steps" and rank == 1 else 20):
    loss = float(step(weights, rows, scale))
    if fault == "gather" and number == 5 and rank == 0:
        multihost_utils.process_allgather(jnp.ones(1))  # HERE
if fault == "gather last" and rank == 0:
    multihost_utils.process_allgather(jnp.ones(1))
print(f"rank {rank} is done, loss {loss}")
