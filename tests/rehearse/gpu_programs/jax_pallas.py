"""JAX on devices of the platform "gpu", with a Pallas kernel and a reduction over both processes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
assert len(jax.local_devices(backend="gpu")) == 1
assert jax.devices("cuda") == jax.devices()


def double(x, out):
    out[...] = x[...] * 2


def kernel(x):
    return pallas.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


assert (jax.jit(kernel)(jnp.ones(8)) == 2).all()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
rows = np.full((2, 4), 1.0 + jax.process_index(), np.float32)
x = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), rows)
for _ in range(3):
    assert jax.jit(lambda x: (x * x).sum())(x) == 8 * (1 + 4)
