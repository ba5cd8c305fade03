"""Decisions that another file takes for all ranks."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import torch
from accelerate import Accelerator
from guard import NanGuard

def main(model, loader, optimizer):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    guard = NanGuard(accelerator)
    for x in loader:
        loss = model(x)
        if guard.bad(loss):
            continue
        accelerator.backward(loss)
        optimizer.step()

if __name__ == "__main__":
    main(make(), data(), torch.optim.SGD)
"""
GUARD = """\
import torch

class NanGuard:
    def __init__(self, accelerator):
        self.accelerator = accelerator

    def bad(self, loss):
        flag = (~torch.isfinite(loss)).float()
        return {decided}.item() > 0
"""


@pytest.mark.parametrize(
    ("decided", "lines"), [('self.accelerator.reduce(flag, reduction="sum")', []), ("flag.sum()", [11])]
)
def test_a_loss_that_another_file_looks_at_for_all_ranks_makes_none_skip_alone(decided: str, lines: list[int]) -> None:
    """What that file reduces over the processes is one answer for all; what it finds in a rank's own loss is not."""
    sources = {"train.py": TRAIN, "guard.py": GUARD.format(decided=decided)}
    findings = check({path: text.encode() for path, text in sources.items()}, Settings(select=("AR209",))).findings
    assert [one.place.line for one in findings] == lines


TOTALS = """\
import torch
import torch.distributed as dist
import sums
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def fit(model, rows, goal):
    dist.init_process_group("nccl")
    model, loader = DDP(model), DataLoader(rows, sampler=DistributedSampler(rows))
    for epoch in range(9):
        total = torch.zeros(2)
        for x in loader:
            loss = model(x)
            loss.backward()
            total += torch.tensor([loss.item(), 1.0])
        s, n = sums.total(total).tolist()
        if s / n < goal:
            break

if __name__ == "__main__":
    fit(make(), data(), 0.1)
"""
SUMS = """\
import torch.distributed as dist

def total(parts):
    parts = parts.clone()
    {reduced}
    return parts
"""


@pytest.mark.parametrize(("reduced", "lines"), [("dist.all_reduce(parts)", []), ("parts *= 2", [17])])
def test_a_score_that_another_file_adds_up_over_the_ranks_stops_all_of_them(reduced: str, lines: list[int]) -> None:
    """The condition itself calls nothing: what it asks was reduced above."""
    sources = {"train.py": TOTALS, "sums.py": SUMS.format(reduced=reduced)}
    findings = check({path: text.encode() for path, text in sources.items()}, Settings(select=("AR209",))).findings
    assert [one.place.line for one in findings] == lines
