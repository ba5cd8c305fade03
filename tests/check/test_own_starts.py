"""Gradients averaged by hand keep parameters apart that were drawn under seeds of the processes' own."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import random
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import (
    DistributedDataParallel as DDP,
)


def set_seed(seed):
    {first}
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(seed)


def average(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)  # instead of the broadcast of DDP(model)


def main():
    dist.init_process_group("nccl")
    {seeds}
    model = torch.nn.Linear(4, 4)
    {model}
    average(model)
"""


def found(seeds: str, first: str = "pass", model: str = "pass") -> list[int]:
    source = TRAIN.format(seeds=seeds, first=first, model=model)
    findings = check({"train.py": source.encode()}, Settings(select=("AR702",))).findings
    return [one.place.line for one in findings]


@pytest.mark.parametrize(
    ("seeds", "model"),
    [
        ("set_seed(42)", "pass"),
        ("torch.manual_seed(1)", "pass"),
        ("set_seed(dist.get_rank())", "model = DDP(model)"),
        ("set_seed(dist.get_rank())", "dist.broadcast(model.weight, 0)"),
    ],
)
def test_equal_seeds_and_models_that_are_sent_begin_alike(seeds: str, model: str) -> None:
    """By a helper or straight, wrapped or broadcast."""
    assert found(seeds, model=model) == []
