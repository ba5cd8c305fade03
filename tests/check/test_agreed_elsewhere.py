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
