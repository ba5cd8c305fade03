import jax


def keys(seed):
    key = jax.random.PRNGKey(seed)
    return jax.random.split(key, jax.local_device_count())  # expect: AR701


print(jax.process_index(), keys(0))
