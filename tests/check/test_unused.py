"""What nobody does: a function that nobody calls, an option that nobody gives, a world that is this host's alone."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check


def _lines(code: str, **sources: str) -> list[int]:
    raw = {f"{name}.py": text.encode() for name, text in sources.items()}
    return [finding.place.line for finding in check(raw, Settings(select=(code,))).findings]


REDUCED = """\
import torch.distributed as dist

def average(loss, count):
    dist.all_reduce(loss / count)
    return loss
"""
LISTED = """\
import glob
import torch.distributed as dist

def find_shards(folder):
    return glob.glob(folder)

dist.init_process_group("nccl")
"""


@pytest.mark.parametrize(("code", "helper", "name"), [("AR310", REDUCED, "average"), ("AR307", LISTED, "find_shards")])
def test_a_function_that_nobody_calls_does_no_harm(code: str, helper: str, name: str) -> None:
    """One whose name stands nowhere else in the project is not told of; who calls it makes it count."""
    caller = f"import torch.distributed as dist\nimport helper\n\ndist.init_process_group('nccl')\nhelper.{name}(1)\n"
    assert _lines(code, helper=helper, train=caller.replace(f"helper.{name}(1)", "print(1)")) == []
    assert len(_lines(code, helper=helper, train=caller)) == 1


SHARDED = """\
import glob
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd

def load(folder, batch_size=8, mixed=False):
    files = sorted(glob.glob(folder))
    if mixed:
        np.random.shuffle(files)
    data = tf.data.Dataset.from_tensor_slices(files)
    return data.shard(hvd.size(), hvd.rank()).batch(batch_size)

def main(args):
    hvd.init()
    options = {options}
    return load(args.folder, **options)
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("dict(batch_size=4)", []),
        ('{"batch_size": 4}', []),
        ("dict(batch_size=4, mixed=args.mixed)", [9]),
        ("dict(args.options)", [9]),
        ("args.options", [9]),
    ],
)
def test_an_option_that_is_off_and_not_among_those_passed_on(options: str, expected: list[int]) -> None:
    """What is passed on with two stars is looked into where all its names stand in the function."""
    assert _lines("AR308", data=SHARDED.replace("{options}", options)) == expected


SPAWNED = """\
import os
import torch
import torch.distributed as dist

def prepare(nodes):
    count = torch.cuda.device_count()
    os.environ["WORLD_SIZE"] = str({world})

def work(local_rank):
    os.environ["RANK"] = str(local_rank)
    dist.init_process_group("nccl")
"""


@pytest.mark.parametrize(("world", "expected"), [("count", []), ("nodes", [10])])
def test_the_rank_on_the_node_is_that_of_a_world_of_one_host(world: str, expected: list[int]) -> None:
    """A job of as many processes as this host has GPUs has no other host."""
    assert _lines("AR306", train=SPAWNED.replace("{world}", world)) == expected


CONDITIONED = """\
import random
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def look(model, batch):
    return model(batch)

class Experiment:
    def __init__(self, net):
        dist.init_process_group("nccl")
        self.model = DDP(net)

    def loss(self, batch):
        if random.random() > 0.5:
            {context}
                batch = look(self.model, batch)
        return self.model(batch)

Experiment(torch.nn.Linear(2, 2)).loss(torch.ones(2))
"""


@pytest.mark.parametrize(("context", "expected"), [("with torch.no_grad():", []), ("if batch is not None:", [17])])
def test_a_forward_pass_without_gradients_further_down(context: str, expected: list[int]) -> None:
    """Who calls a function under no_grad runs all of it so: nothing is reduced."""
    assert _lines("AR203", train=CONDITIONED.replace("{context}", context)) == expected


SEEDED = """\
import jax
from jax.experimental import multihost_utils
from start import first_seed

jax.distributed.initialize()
key = {key}
"""


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("jax.random.PRNGKey(first_seed())", [6]),
        ("multihost_utils.broadcast_one_to_all(jax.random.PRNGKey(first_seed()))", []),
        ("(seed := multihost_utils.broadcast_one_to_all(first_seed()), jax.random.PRNGKey(seed))", []),
    ],
)
def test_a_key_that_is_broadcast_where_it_is_made(key: str, expected: list[int]) -> None:
    """All processes have the key of the first one, or what it is made of."""
    start = "import time\n\ndef first_seed():\n    return int(time.time())\n"
    assert _lines("AR702", train=SEEDED.replace("{key}", key), start=start) == expected


def test_a_function_of_another_file_with_the_same_name_calls_nobody() -> None:
    """Copied helpers: the one of the program that is a file of its own is not the one of the other."""
    wrap = "def wrap(model):\n    return DDP(model, device_ids=[dist.get_rank()])\n"
    head = (
        "import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n\n"
        "def ready():\n    return dist.is_initialized()\n\n"
    )
    main = "\nif __name__ == '__main__':\n    print(ready())\n"
    train = f"{head}{wrap}\ndist.init_process_group('gloo')\nmodel = wrap(make())\n"
    assert _lines("AR605", train=train, score=f"{head}{wrap}{main}") == [8]
    users = "import score\n\nscore.wrap(make())\n"
    assert _lines("AR605", score=f"{head}{wrap}{main}", train=users) == [8]


def test_who_sleeps_in_a_class_that_nobody_names_delays_nobody() -> None:
    data = (
        "import os\nimport time\n\nclass Coordinates:\n    def __init__(self, path):\n        self.fetch(path)\n\n"
        "    def fetch(self, path):\n        if int(os.environ['RANK']) == 0:\n            download(path)\n"
        "        else:\n            while not os.path.exists(path):\n                time.sleep(3)\n"
    )
    assert _lines("AR803", data=data, train="import data\n\n# data.Coordinates('a.parquet')\n") == []
    assert _lines("AR803", data=data, train="import data\n\ndata.Coordinates('a.parquet')\n") == [13]
