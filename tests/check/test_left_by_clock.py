"""A loop of training that a process leaves by its own clock, however it leaves it and whatever wraps its model."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

METHOD = """\
import sys
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Learner:
    def __init__(self, model):
        self.model = WRAP(model)
        self.opt = torch.optim.AdamW(self.model.parameters())

    def train(self, epochs, loader):
        t0 = time.time()
        for epoch in range(epochs):
            for batch in loader:
                loss = self.model(batch).mean()
                loss.backward()
                self.opt.step()
                if time.time() - t0 > 3600:
                    LEAVE


def main():
    dist.init_process_group("nccl")
    Learner(torch.nn.Linear(16, 16)).train(10, torch.randn(1000, 16))


main()
"""
FUNCTION = """\
import sys
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, loader, opt):
    t0 = time.monotonic()
    for batch in loader:
        model(batch).mean().backward()
        opt.step()
        if time.monotonic() - t0 > 3600:
            LEAVE


dist.init_process_group("nccl")
train(WRAP(torch.nn.Linear(16, 16)), [], None)
"""


def lines(text: str, wrap: str, leave: str) -> list[int]:
    source = text.replace("WRAP", wrap).replace("LEAVE", leave)
    findings = check({"train.py": source.encode()}, Settings(select=("AR203", "AR209"))).findings
    return [one.place.line for one in findings if one.code == "AR209" or pytest.fail(one.code)]


@pytest.mark.parametrize("wrap", ["DDP", "FSDP"])
@pytest.mark.parametrize("leave", ["return", "break", "sys.exit(0)"])
def test_a_loop_that_is_left_by_the_clock_leaves_the_others(wrap: str, leave: str) -> None:
    """In a method and in a function."""
    assert lines(METHOD, wrap, leave) == [18]
    assert lines(FUNCTION, wrap, leave) == [12]


def test_who_tells_the_time_or_fails_leaves_nobody() -> None:
    """A message that is printed; an error ends the job."""
    for leave in ("print('late')", "raise TimeoutError", "sys.exit(1)"):
        assert lines(METHOD, "DDP", leave) == lines(FUNCTION, "FSDP", leave) == []


def test_a_clock_behind_the_last_step_leaves_nobody() -> None:
    """There is no next round."""
    text = FUNCTION.replace("        if time", "    if time").replace("            LEAVE", "        LEAVE")
    assert lines(text, "DDP", "return") == []
