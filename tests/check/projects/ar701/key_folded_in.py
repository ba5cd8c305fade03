import jax
from flax import jax_utils
from flax.training.common_utils import shard_prng_key
from jax.sharding import PartitionSpec as P


class State(TrainState):
    dropout_rng: jax.Array

    def replicate(self):
        key = jax.random.fold_in(self.dropout_rng, jax.process_index())
        return jax_utils.replicate(self).replace(dropout_rng=shard_prng_key(key))


def noisy(x, key, place):
    key = jax.random.fold_in(key, place[0])
    return x + jax.random.normal(key, x.shape)


def made(key):
    return jax.random.normal(key, (8, 8))


def build(mesh):
    noise = jax.shard_map(noisy, mesh=mesh, in_specs=(P("data"), P(), P("data")), out_specs=P("data"))
    params = jax.shard_map(made, mesh=mesh, in_specs=(P(),), out_specs=P())
    per_device = jax.shard_map(lambda x, key: jax.random.normal(key[0], x.shape),
        mesh=mesh, in_specs=(P("data"), P("data")), out_specs=P("data"))
    return noise, params, per_device
