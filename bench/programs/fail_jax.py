"""A JAX job that trains, until something happens to rank 1. argv: what happens."""

import sys

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from told import join_jax, suffer

join_jax()
mesh = Mesh(jax.devices(), "d")
split = NamedSharding(mesh, PartitionSpec("d"))
step = jax.jit(lambda x: x - 0.1 * (x * x).mean())
x = jax.jit(lambda: jnp.ones(jax.device_count()), out_shardings=split)()
for number in range(100_000):
    x = step(x).block_until_ready()
    if number == 20 and jax.process_index() == 1:
        suffer(sys.argv[1])
