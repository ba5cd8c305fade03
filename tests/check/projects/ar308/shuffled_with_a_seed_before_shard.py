import jax
import tensorflow as tf


def rows(pattern, size, seed, training):
    n, me = jax.process_count(), jax.process_index()
    files = tf.data.Dataset.from_tensor_slices(sorted(tf.io.gfile.glob(pattern)))
    files = files.shuffle(100_000, seed=seed).shard(n, me)
    return files.interleave(tf.data.TFRecordDataset).shuffle(1000, seed=seed + me).batch(size // n)


jax.distributed.initialize()
for batch in rows("*.tfrecord", 64, 0, True):
    jax.pmap(step)(batch)
