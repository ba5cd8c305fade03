import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()
mesh = Mesh(np.array(jax.devices()).reshape(-1), ('data',))

def noisy(key, x):
    key = jax.random.fold_in(key, jax.lax.axis_index('data'))
    return x + jax.random.normal(key, x.shape)

noise = jax.jit(jax.shard_map(noisy, mesh=mesh, in_specs=(P(), P('data')), out_specs=P('data')))
key = jax.random.key(0)
x = jax.make_array_from_process_local_data(NamedSharding(mesh, P('data')), np.ones((8, 4)))
for step in range(10):
    key, sub = jax.random.split(key)
    x = noise(sub, x)
