"""A collective that hangs on the loss of one process' batch."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

LOOP = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def fit(model, loader, optimizer, args):
    model = DDP(model)
    for step, batch in enumerate(loader):
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        {before}
        if {test}:
            {then}
"""


def lines(test: str, then: str = "dist.barrier()", before: str = "pass") -> list[int]:
    source = LOOP.format(test=test, then=then, before=before)
    return [one.place.line for one in check({"train.py": source.encode()}, Settings(select=("AR203",))).findings]


@pytest.mark.parametrize(
    ("test", "before"),
    [
        ("loss.item() < 1.0", "pass"),
        ("torch.isnan(loss)", "pass"),
        ("step > 10 and value > 3", "value = loss.item()"),
        ("not torch.isfinite(value).all()", "value = loss.detach()"),
    ],
)
def test_a_collective_that_hangs_on_an_own_loss_is_found(test: str, before: str) -> None:
    """Asked directly, or by what it is read into."""
    assert lines(test, before=before) == [15]
    assert lines(test, "torch.distributed.all_reduce(loss)", before) == [15]


@pytest.mark.parametrize(
    ("test", "then", "before"),
    [
        ("loss.item() < 1.0", "print(loss)", "pass"),
        ("step % 10 == 0", "dist.barrier()", "pass"),
        ("loss is not None", "dist.barrier()", "pass"),
        ("args.loss_limit > 0", "dist.barrier()", "pass"),
        ("grad_norm > 1", "dist.barrier()", "pass"),
        ("loss < 1", "dist.barrier()", "dist.all_reduce(loss)"),
        ("mean < 1", "dist.barrier()", "mean = reduce_mean(loss)"),
        ("mean < 1", "dist.barrier()", "mean = all_processes(loss.item())"),
        ("loss < 1", "raise ValueError", "pass"),
        ("self.step > 1", "dist.barrier()", "self.loss = loss; self.loss.backward()"),
    ],
)
def test_what_all_ask_alike_is_not(test: str, then: str, before: str) -> None:
    """A setting, a step, gradients, what was reduced; or nobody meets."""
    assert lines(test, then, before) == []
