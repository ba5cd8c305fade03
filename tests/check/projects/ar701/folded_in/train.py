import jax


def keys(seed):
    key = jax.random.PRNGKey(seed)
    key = jax.random.fold_in(key, jax.process_index())
    return jax.random.split(key, jax.local_device_count())


print(jax.process_index(), keys(0))
