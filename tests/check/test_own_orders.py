"""What each process puts in an order by itself before it is dealt out by number: pipelines, orders without a name."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

PIPELINE = """\
import jax
import tensorflow as tf


def rows(pattern, size, seed, training):
    n, me = jax.process_count(), jax.process_index()
    files = tf.data.Dataset.from_tensor_slices(sorted(tf.io.gfile.glob(pattern)))
{made}
    return files.interleave(tf.data.TFRecordDataset).shuffle(1000, seed=seed + me).batch(size // n)


jax.distributed.initialize()
for batch in rows("*.tfrecord", 64, 0, True):
    jax.pmap(step)(batch)
"""


def lines(source: str) -> list[int]:
    findings = check({"train.py": source.encode()}, Settings(select=("AR308",))).findings
    return [finding.place.line for finding in findings]


@pytest.mark.parametrize(
    "made",
    [
        "    files = files.shard(n, me).shuffle(100_000)",
        "    files = files.shuffle(100_000, seed=seed).shard(n, me)",
        "    files = tf.data.Dataset.list_files(pattern, shuffle=False).shard(n, me)",
        "    files = tf.data.Dataset.list_files(pattern, seed=seed).shard(n, me)",
        "    if training:\n        files = files.shuffle(9)\n    else:\n        files = files.shard(n, me)",
        "    files = tfds.load('c4', shuffle_files=True, read_config=shared).shard(n, me)",
        "    tf.random.set_seed(seed)\n    files = files.shuffle(100_000).shard(n, me)",
        "    files = files.shuffle(100).shard(4, 0)",
    ],
)
def test_a_pipeline_in_one_order_for_all_is_not_found(made: str) -> None:
    """It is dealt out first, or has a seed that all processes share."""
    source = PIPELINE.format(made=made).replace("import jax\n", "import jax\nimport tensorflow_datasets as tfds\n", 1)
    assert lines(source) == []


LISTED = """\
import random
import jax
import tensorflow as tf


def rows(names, shard, shards):
    {first}
    random.shuffle(names)
    return tf.data.Dataset.from_tensor_slices(names).shard(num_shards=shards, index=shard)


jax.distributed.initialize()
for batch in rows(["a", "b"], jax.process_index(), jax.process_count()):
    jax.pmap(step)(batch)
"""


def test_a_list_that_a_pipeline_begins_with_is_an_order_too() -> None:
    """Each process deals out the files in an order of its own."""
    assert lines(LISTED.format(first="pass")) == [8]


def test_a_list_that_is_shuffled_alike_is_not() -> None:
    """All processes have one order."""
    assert lines(LISTED.format(first="random.seed(0)")) == []
