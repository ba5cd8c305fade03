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
        "    files = files.shuffle(100_000).repeat().shard(n, me)",
        "    files = files.shuffle(100, seed=seed + me).shard(n, me)",
        "    files = tf.data.Dataset.list_files(pattern).shard(num_shards=n, index=me)",
        "    files = tf.data.Dataset.list_files(pattern, shuffle=training).repeat().shard(n, me)",
        "    files = tfds.load('c4', shuffle_files=True).shard(n, me)",
    ],
)
def test_a_pipeline_that_is_shuffled_without_a_seed_before_it_is_dealt_out_is_found(made: str) -> None:
    """The numbers of shard mean other files in each process."""
    source = PIPELINE.format(made=made).replace("import jax\n", "import jax\nimport tensorflow_datasets as tfds\n", 1)
    assert lines(source) == [9]


def test_a_shuffle_some_lines_above_and_a_number_that_is_handed_over_are_found() -> None:
    """``index`` is a parameter of the function that deals out."""
    source = """\
import jax
import tensorflow as tf


def rows(pattern, index, count):
    data = tf.data.Dataset.list_files(pattern)
    data = data.cache()
    if count > 1:
        data = data.shard(count, index)
    return data


jax.distributed.initialize()
rows("*", jax.process_index(), jax.process_count())
"""
    assert lines(source) == [6]


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


def test_an_order_that_is_dealt_out_where_it_is_drawn_is_found() -> None:
    """It has no name of its own, or the one of what a method returned."""
    source = """\
import time
import numpy as np
import jax


class Shards:
    def __init__(self, shards):
        self.shards, self.rank, self.world = shards, jax.process_index(), jax.process_count()

    def mine(self, epoch):
        rng = np.random.default_rng(int(time.time()) + epoch)
        return rng.permutation(len(self.shards))[self.rank :: self.world]

    def order(self):
        return np.random.default_rng().permutation(len(self.shards))

    def ours(self):
        order = self.order()
        return [self.shards[i] for i in order[self.rank :: self.world]]
"""
    assert lines(source) == [12, 15]


def test_gathered_rows_that_each_process_shuffles_by_itself_are_found() -> None:
    """What was gathered is no process' part, though each is asked for its own."""
    source = """\
import torch
import torch.distributed as dist


def gather(t):
    out = [torch.ones_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(out, t)
    return torch.cat(out)


def concat_all_gather(t):
    return gather(t[dist.get_rank():])


def shuffled(x):
    here, rank = x.size(0), dist.get_rank()
    x = concat_all_gather(x)
    order = torch.randperm(x.size(0), device=x.device)
    {sent}
    return x[order[rank * here : (rank + 1) * here]]
"""
    assert lines(source.replace("{sent}", "pass")) == [18]
    assert lines(source.replace("{sent}", "dist.broadcast(order, src=0)")) == []


def test_a_list_that_is_shuffled_by_the_seed_of_a_rank_and_handed_over_with_it_is_found() -> None:
    """Who is given the rank and the number of ranks deals out."""
    source = """\
import glob
import random
from reader import Packed


def train(fabric):
    fabric.seed_everything(7)
    return loader(fabric, seed=7 + fabric.global_rank)


def loader(fabric, seed):
    names = sorted(glob.glob("data/*.bin"))
    random.seed(seed)
    random.shuffle(names)
    return Packed(names, num_processes=fabric.world_size, process_rank=fabric.global_rank)
"""
    assert lines(source) == [14]
    assert lines(source.replace("Packed(names", "Packed(sorted(names)")) == []
    packed = (
        "\n\ndef Packed(rows, num_processes, process_rank):\n    rows = sorted(rows)\n    return rows[process_rank]\n"
    )
    assert lines(source.replace("from reader import Packed\n", "\n") + packed) == []


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


def test_a_data_set_that_orders_itself_by_seeds_of_each_process_is_told() -> None:
    """Nobody was seen to make it, and each program seeds itself by its rank."""
    data = """\
import torch
from torch.utils.data import Dataset


class Jets(Dataset):
    def __init__(self, data, n):
        self.perm = torch.randperm(len(data))[:n]
"""
    program = """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
torch.manual_seed({seed})
rows = DataLoader(made, sampler=DistributedSampler(made))
"""
    for seed, found in (("dist.get_rank()", [7]), ("3", [])):
        sources = {"jets.py": data.encode(), "train.py": program.format(seed=seed).encode()}
        findings = check(sources, Settings(select=("AR308",))).findings
        assert [finding.place.line for finding in findings] == found


SPLITS = """\
import random
import numpy as np


def train_val(files):
    files = list(files)
    {drawn}
    {parts}


def main_part(files):
    random.shuffle(files)
    return files[:10]
"""
PROGRAM = """\
import random
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from splits import train_val

dist.init_process_group("nccl")
{seeded}
train, val = train_val(sorted(find()))
sampler = DistributedSampler(train)
model = DDP(make())
for epoch in range(9):
    sampler.set_epoch(epoch)
    for x in DataLoader(train, sampler=sampler):
        model(x).backward()
"""
_GIVEN_BACK = "return files[10:], files[:10]"


@pytest.mark.parametrize(
    ("drawn", "parts", "seeded", "found"),
    [
        ("random.shuffle(files)", _GIVEN_BACK, "", [7]),
        ("random.shuffle(files)", "train, val = files[10:], files[:10]; return train, val", "", [7]),
        ("order = np.random.permutation(99)", "train, val = files[order[:9]], files[order[9:]]; return 1", "", [7]),
        ("random.shuffle(files)", _GIVEN_BACK, "random.seed(7)", []),
        ("random.Random(7).shuffle(files)", _GIVEN_BACK, "", []),
        ("random.shuffle(files)", "return files", "", []),
    ],
)
def test_training_and_test_data_told_apart_in_another_file_are_found(
    drawn: str, parts: str, seeded: str, found: list[int]
) -> None:
    """What one process tests on, another one trains on, where the program sets no seed and deals out by number."""
    sources = {"splits.py": SPLITS.format(drawn=drawn, parts=parts), "train.py": PROGRAM.format(seeded=seeded)}
    findings = check({path: text.encode() for path, text in sources.items()}, Settings(select=("AR308",))).findings
    assert [(one.place.path, one.place.line) for one in findings] == [("splits.py", line) for line in found]


@pytest.mark.parametrize(
    ("given", "expected"), [("", []), (", shuffle=False", [9]), (", True", [9]), (", **more", [9])]
)
def test_a_branch_that_no_call_switches_on_is_not_taken(given: str, expected: list[int]) -> None:
    """What a call gives may be true, whatever it looks like: who gives it has thought of it."""
    source = f"""\
import numpy as np
import torch.distributed as dist


def part(files, shuffle=False):
    dist.init_process_group("nccl")
    files = sorted(files)
    if shuffle:
        np.random.shuffle(files)
    return files[dist.get_rank() :: dist.get_world_size()]


part(list(rows){given})
"""
    assert lines(source) == expected


@pytest.mark.parametrize(("seed", "expected"), [("", [9]), (", seed=3", [])])
def test_a_data_set_of_hugging_face_that_is_dealt_out_in_another_method_is_found(
    seed: str, expected: list[int]
) -> None:
    """What is told apart there differs from process to process."""
    source = f"""\
import datasets
import torch.distributed as dist
from datasets.distributed import split_dataset_by_node


class Rows:
    def setup(self):
        whole = datasets.load_dataset("parquet", split="train")
        parts = whole.train_test_split(test_size=0.1{seed})
        self.train, self.val = (self.part(parts[name]) for name in ("train", "test"))

    def part(self, rows):
        return split_dataset_by_node(rows.map(str), rank=dist.get_rank(), world_size=dist.get_world_size())


dist.init_process_group("nccl")
Rows().setup()
"""
    assert lines(source) == expected
