"""Streams that every process reads whole, and those of which each has its part or draws its own: AR301."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

STREAM = """\
from torch.utils.data import IterableDataset

class Packed(IterableDataset):
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        {part}
            yield encode(row)
"""
GOES_THROUGH = """\
import torch.distributed as dist
from stream import Packed
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from transformers import {used}

class Trainer:
    def __init__(self):
        self.model = DDP(AutoModel.from_pretrained("gpt2"))
        self.loader = DataLoader(Packed({source}), batch_size=8, num_workers=2)

    def fit(self):
        for x in self.loader:
            self.model(x).backward()

dist.init_process_group("nccl")
Trainer().fit()
"""


@pytest.mark.parametrize(
    ("part", "source", "used", "lines"),
    [
        ("for row in self.source:", "read()", "AutoModel", [10]),
        ("for row in self.source[dist.get_rank() :: 8]:", "read()", "AutoModel", []),
        ("for row in self.source:", "read().shard(8, me)", "AutoModel", []),
        ("for row in self.source:", "read()[rank::8]", "AutoModel", []),
        ("for row in self.source:", "read()", "TrainingArguments", []),
    ],
)
def test_a_stream_of_another_file_is_read_whole_by_every_process(
    part: str, source: str, used: str, lines: list[int]
) -> None:
    """Neither the stream nor who makes the loader asks who it is; a class called Trainer is no library's."""
    sources = {
        "stream.py": STREAM.format(part=part).encode(),
        "train.py": GOES_THROUGH.format(source=source, used=used).encode(),
    }
    findings = check(sources, Settings(select=("AR301",))).findings
    assert [one.place.line for one in findings if one.place.path == "train.py"] == lines
    made_up = {path: text.replace(b"Packed", b"FakeRows") for path, text in sources.items()}
    assert check(made_up, Settings(select=("AR301",))).findings == ()


PIPED = """\
import tensorflow as tf


def read(pattern):
    return tf.data.TFRecordDataset(pattern).repeat().shuffle({size})
"""


@pytest.mark.parametrize(
    ("part", "size", "seeds", "lines"),
    [
        ("for row in self.source.as_numpy_iterator():", "1000", "", []),
        ("for row in self.source.as_numpy_iterator():", "1000", "tf.random.set_seed(0)", [10]),
        ("while True:\n            row = random.choice(self.source)", "1000", "", []),
        ("while True:\n            row = random.choice(self.source)", "1000", "random.seed(0)", [10]),
        ("for row in random.sample(self.source):", "1000", "", [10]),
    ],
)
def test_a_stream_without_an_end_that_each_process_draws_by_itself_need_not_be_dealt_out(
    part: str, size: str, seeds: str, lines: list[int]
) -> None:
    """One that ends is gone through by all, in whatever order; and equal seeds draw the same."""
    sources = {
        "stream.py": STREAM.format(part=part).encode(),
        "rows.py": f"{PIPED.format(size=size)}\n\n{seeds}\n".replace("import", "import random\nimport", 1).encode(),
        "train.py": GOES_THROUGH.format(source="rows.read()", used="AutoModel").encode(),
    }
    findings = check(sources, Settings(select=("AR301",))).findings
    assert [one.place.line for one in findings if one.place.path == "train.py"] == lines


@pytest.mark.parametrize(("who", "found"), [("os.environ['RANK'], os.environ['WORLD_SIZE']", 0), ("0, 2", 1)])
def test_a_stream_may_be_told_by_another_file_which_part_is_its_own(who: str, found: int) -> None:
    """Where one file holds all but that, too."""
    part = "me, n = consumer()\n        for row in self.source[me::n]:"
    stream = f"from topology import consumer\n{STREAM.format(part=part)}"
    topology = f"import os\n\n\ndef consumer():\n    return {who}\n"
    train = GOES_THROUGH.format(source="read()", used="AutoModel")
    sources = {"stream.py": stream, "topology.py": topology, "train.py": train}
    whole = {"train.py": stream + train.replace("from stream import Packed\n", ""), "topology.py": topology}
    for texts in (sources, whole):
        findings = check({path: text.encode() for path, text in texts.items()}, Settings(select=("AR301",))).findings
        assert len(findings) == found


@pytest.mark.parametrize(("gives", "lines"), [("yield random.choice(self.rows)", []), ("return self.rows[0]", [18])])
def test_a_loader_in_its_own_order_may_go_through_an_endless_stream(gives: str, lines: list[int]) -> None:
    """What the file that wraps the model calls its training data is looked at where it is made."""
    stream = f"""\
import random


class Rows(Base):
    def __iter__(self):
        while True:
            {gives}
"""
    train = """\
import torch.distributed as dist
from rows import Rows
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


class Agent:
    def __init__(self, path):
        self.model = DDP(make())


def main():
    dist.init_process_group("nccl")
    Agent("x")


main()
train_loader = DataLoader(Rows(), batch_size=8)
"""
    sources = {"rows.py": stream.encode(), "train.py": train.encode()}
    findings = check(sources, Settings(select=("AR301",))).findings
    assert [one.place.line for one in findings] == lines
