"""A JAX rank up to its first collective: when it came how far, and the memory it has then."""

from told import join_jax, proportional_bytes, since_begin, tell

stages = {"the script runs": since_begin()}

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

stages["jax is imported"] = since_begin()
join_jax()
stages["the ranks have met"] = since_begin()
mesh = Mesh(jax.devices(), "d")
stages["the devices are there"] = since_begin()
mine = np.ones(jax.local_device_count(), np.float32)
whole = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("d")), mine)
total = jax.jit(lambda x: x.sum())
assert total(whole) == jax.device_count()
stages["the first collective is done"] = since_begin()
tell(stages=stages, pss=proportional_bytes())
assert total(whole + 1) == 2 * jax.device_count()  # nobody leaves before all have measured
