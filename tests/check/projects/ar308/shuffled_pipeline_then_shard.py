import jax
import tensorflow as tf


def train(paths, settings):
    host, hosts = jax.process_index(), jax.process_count()
    files = tf.data.Dataset.from_tensor_slices(paths)
    files = files.shuffle(settings.buffer)  # expect: AR308
    return files.shard(hosts, host)
