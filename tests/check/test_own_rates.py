"""Each process stops, or lowers its rate, by the score of its own part: surely where the file shows that part."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import torch
import torch.distributed as dist
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler


class Stopper:
    def step(self, loss):
        return loss > 1


def data(rows, train):
    sampler = {sampler}
    return DataLoader(rows, 8, sampler=sampler), sampler


@torch.no_grad()
def validate(model, loader):
    losses = [model(x).item() for x in loader]
    return {score}


def main(model, optimizer, rows, val_rows, stopper):
    train_loader, sampler = data(rows, True)
    val_loader, _ = data(val_rows, False)
    schedule = ReduceLROnPlateau(optimizer)
    stopper = Stopper()
    for epoch in range(9):
        sampler.set_epoch(epoch)
        for x in train_loader:
            model(x).backward()
        {used}
"""
SPLIT = "DistributedSampler(rows, shuffle=train)"
MEAN = "sum(losses) / len(losses)"
RATE = "schedule.step(validate(model, val_loader))"
STOPS = "val = validate(model, val_loader)\n        if stopper.step(val):\n            break"


def sure(text: str) -> list[tuple[str, int]]:
    found = check({"train.py": text.encode()}, Settings(select=("AR209", "AR310"))).findings
    return [(one.code, one.place.line) for one in found if one.confidence == "high" and one.place.line > 24]


@pytest.mark.parametrize("used", [RATE, STOPS])
@pytest.mark.parametrize(
    ("sampler", "score"),
    [
        ("DistributedSampler(rows) if train else None", MEAN),
        (SPLIT, "mean_over_all_ranks(losses)"),
    ],
)
def test_where_all_look_at_all_of_it_or_agree_nothing_is_sure(sampler: str, score: str, used: str) -> None:
    assert sure(TRAIN.format(sampler=sampler, score=score, used=used)) == []
