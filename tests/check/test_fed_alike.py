"""Programs of JAX that feed what every process reads whole, and those that look alike and do not."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

ARRAYS = """\
import numpy as np


class Rows:
    def __init__(self, path, size, seed):
        self.x = np.load(path + "/x.npy", mmap_mode="r")
        self.y = np.load(path + "/y.npy", mmap_mode="r")
        self.mean = np.load(path + "/mean.npy")
        self.size, self.rng = size, np.random.default_rng(seed)

    def __iter__(self):
        while True:
            order = self.rng.permutation(len(self.x))
            for at in range(0, len(order) - self.size, self.size):
                yield self.x[order[at : at + self.size]]
"""
PIPELINE = """\
import tensorflow_datasets as tfds


class Rows:
    def __init__(self, path, size, seed):
        self.rows = tfds.load(path, split="train", shuffle_files=True).shuffle(99, seed=seed).batch(size)
        self.held = tfds.load(path, split="test").batch(size)
"""
TRAIN = """\
import jax
import numpy as np
from rows import Rows

{join}
sharding = jax.sharding.NamedSharding(jax.make_mesh((8,), ("d",)), jax.sharding.PartitionSpec("d"))
process = jax.process_index()
rows = Rows("/data", 1024, seed={seed}){cut}
for step, row in enumerate(rows):
    {batch}
    value = train_step(batch)
    if process == 0:
        print(step, value)
    if jax.process_index() == 0 and step % 100 == 0:
        print("hundred")
"""
JOIN = "jax.distributed.initialize()"
LOCAL = "batch = jax.make_array_from_process_local_data(sharding, row)"
PMAP = "batch = jax.pmap(lambda x: x)(row.reshape(jax.local_device_count(), -1))"


def found(rows: str, **how: str) -> list[tuple[str, int]]:
    train = TRAIN.format(**{"join": JOIN, "seed": "0", "cut": "", "batch": LOCAL, **how})
    findings = check({"rows.py": rows.encode(), "train.py": train.encode()}, Settings(select=("AR305",))).findings
    return [(finding.place.path, finding.place.line) for finding in findings]


@pytest.mark.parametrize("rows", [ARRAYS, PIPELINE])
@pytest.mark.parametrize("batch", [LOCAL, PMAP])
def test_what_nothing_in_the_program_divides_is_read_alike(rows: str, batch: str) -> None:
    """One finding for one reader, at its first read."""
    assert found(rows, batch=batch) == [("rows.py", 6)]


@pytest.mark.parametrize(
    "how",
    [
        {"join": "pass"},  # one host
        {"seed": "process"},  # an order, or rows, of its own
        {"cut": ".part(process, jax.process_count())"},
        {"cut": ".shard(jax.process_count(), jax.process_index())"},
        {"batch": "batch = jax.device_put(row, sharding)"},  # the whole batch, the same on all
        {
            "batch": "batch = jax.device_put(row, sharding)",
            "join": f"{JOIN}\n'https://jax.readthedocs.io/#parallelization-pmap'",
        },
        {"batch": "batch = jax.make_array_from_callback(row.shape, sharding, lambda at: row[at])"},
    ],
)
def test_programs_that_divide_or_feed_the_whole_are_left_alone(how: dict[str, str]) -> None:
    """Whatever the number of the process is used for, but to be the first, may say what it reads."""
    assert found(ARRAYS, **how) == []
    assert found(PIPELINE, **how) == []


def test_a_number_that_an_object_keeps_divides_elsewhere() -> None:
    """What one file keeps as the number of the process, another one gives to its reader, or asks whether it is 0."""
    host = b"import jax\n\n\nclass Host:\n    def __init__(self):\n        self.index = jax.process_index()\n"
    for use, expected in (("0, host.index", []), ("0 if host.index == 0 else 0", ["AR305"])):
        train = TRAIN.format(join=f"from host import Host\n{JOIN}\nhost = Host()", seed=use, cut="", batch=LOCAL)
        files = {"host.py": host, "rows.py": ARRAYS.encode(), "train.py": train.encode()}
        assert [one.code for one in check(files, Settings(select=("AR305",))).findings] == expected


def test_rows_that_each_process_draws_are_its_own() -> None:
    """NumPy's generator without a seed gives every process another order."""
    assert found(ARRAYS.replace("default_rng(seed)", "default_rng()")) == []
