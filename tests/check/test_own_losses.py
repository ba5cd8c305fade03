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


SKIPS = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def fit(model, loader, optimizer):
    model = DDP(model)
    for batch in loader:
        loss = model(batch).mean()
        {first}
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        {second}
        optimizer.step()
"""


def skipped(first: str, second: str) -> list[int]:
    source = SKIPS.format(first=first, second=second)
    return [one.place.line for one in check({"train.py": source.encode()}, Settings(select=("AR209",))).findings]


def test_a_round_that_is_left_behind_its_backward_pass_leaves_nobody_waiting() -> None:
    """Nor does one that is left by the norm of reduced gradients, whatever is called so."""
    by_loss, by_norm = (f"if not torch.isfinite({name}): continue" for name in ("loss", "norm"))
    assert skipped(by_loss, "pass") == [10]
    assert skipped("pass", by_loss) == skipped("pass", by_norm) == []
    assert skipped("pass", by_loss + "\n        reduced(optimizer)") == [13]
    assert skipped("pass", by_norm.replace("continue", "break")) == []


SCORES = """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def total(counts):
    box = torch.tensor(counts)
    dist.all_reduce(box)
    return box.tolist()


def evaluate(model, loader):
    score = Score()
    for x, y in loader:
        score.add(model(x), y)
    return score.{end}.value / len(loader)


def main(model, train, data):
    held = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
    best, bad = 0.0, 0
    for epoch in range(9):
        train_epoch(model, train)
        accuracy = evaluate(model, held)
        best, bad = (accuracy, 0) if accuracy > best else (best, bad + 1)
        if bad > 3:
            break
"""


def test_a_reduction_that_is_handed_to_a_score_makes_it_that_of_all() -> None:
    def left(end: str) -> list[int]:
        source = SCORES.format(end=end)
        return [one.place.line for one in check({"train.py": source.encode()}, Settings(select=("AR209",))).findings]

    assert left("merge()") == [26]
    assert left("merge(total)") == []


STEP = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Learn:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = DDP(model), optimizer

    def __call__(self, batch):
        images, boxes = batch
        {picked}
        if {test}:
            return None
        loss = self.model(images).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss
"""


@pytest.mark.parametrize(
    ("picked", "test", "lines"),
    [
        ("some = [box for box in boxes if len(box)]", "not some", [13]),
        ("some = [box.cuda() for box in boxes]", "not some", []),
        ("some = images", "not self.model.training", []),
    ],
)
def test_a_step_that_is_a_method_of_its_own_is_left_before_its_backward_pass(
    picked: str, test: str, lines: list[int]
) -> None:
    source = STEP.format(picked=picked, test=test)
    found = check({"train.py": source.encode()}, Settings(select=("AR209",))).findings
    assert [one.place.line for one in found] == lines
