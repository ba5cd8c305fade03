"""Methods that a class inherits work on the object that has them, and call what its own class puts in their place."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAINERS = """\
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

class Train:
    def begin(self):
        self.make_writer()
    def make_writer(self):
        self.writer = SummaryWriter("logs")

class TrainMany(Train):
    def begin(self):
        dist.init_process_group("nccl")
        {begins}
    def make_writer(self):
        {asks}
        super().make_writer()
"""


@pytest.mark.parametrize(
    ("begins", "asks", "expected"),
    [
        ("super().begin()", "if dist.get_rank() != 0: return", []),
        ("super(TrainMany, self).begin()", "if dist.get_rank() != 0: return", []),
        ("super().begin()", "print(1)", [8]),
        ("Train.begin(Train())", "if dist.get_rank() != 0: return", [8]),
    ],
)
def test_what_a_method_of_the_class_above_calls_is_that_of_the_object(
    begins: str, asks: str, expected: list[int]
) -> None:
    raw = {"train.py": TRAINERS.format(begins=begins, asks=asks).encode()}
    assert [f.place.line for f in check(raw, Settings(select=("AR103",))).findings] == expected
