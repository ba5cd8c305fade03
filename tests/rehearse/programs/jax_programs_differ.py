"""Process 0 runs another program than the others; in the twin all run one."""

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
rows = NamedSharding(mesh, P("data"))
scale = 2.0 if FIXED or rank else 3.0

total = jax.jit(lambda x: jnp.sum(x) * scale)
x = jax.make_array_from_process_local_data(rows, np.ones(2, "f4"))
for _ in range(3):
    total(x)  # BUG AR211
