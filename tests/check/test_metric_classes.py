"""What a metric class adds up under a name of which its framework does not know, and Keras under Horovod: AR310."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

METRIC = """\
import torch
from torchmetrics import Metric


class Accuracy(Metric):
    def __init__(self):
        super().__init__({options})
        {state}
        self.classes = []

    def update(self, preds, target):
        self.add(preds == target)

    def add(self, right):
        self.right += right.sum()

    def compute(self):
        return self.right / 100
"""
FIT = "import lightning as L\nfrom metric import Accuracy\n\nL.Trainer(devices={devices}).fit(Net(Accuracy()))\n"


def found(**sources: str) -> list[tuple[int, str]]:
    raw = {f"{path}.py": text.encode() for path, text in sources.items()}
    return [(f.place.line, f.confidence) for f in check(raw, Settings(select=("AR310",))).findings]


@pytest.mark.parametrize(
    ("state", "options"),
    [
        ('self.add_state("right", torch.tensor(0), dist_reduce_fx="sum")', ""),
        ("for name in names: self.add_state(name, torch.tensor(0))", ""),
        ("self.right = 0", "sync_on_compute=False"),
        ("self.right = self.total", ""),
    ],
)
def test_state_that_is_named_or_kept_apart_on_purpose_is_right(state: str, options: str) -> None:
    """The last adds up nothing: its number is made of what it was given at first."""
    text = METRIC.format(state=state, options=options)
    text = text if state != "self.right = self.total" else text.replace("self.right +=", "right =")
    assert found(metric=text, fit=FIT.format(devices=8)) == []
