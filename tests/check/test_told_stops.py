"""An object that is told each process' own score lets each leave the training by it."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class EarlyStopping:
    def __init__(self):
        self.best, self.bad, self.stop = 1e9, 0, False

    def __call__(self, v):
        {told}
        self.bad = 0 if v < self.best else self.bad + 1
        self.stop = self.bad > 3


def validate(model, loader):
    losses = [model(x).mean().item() for x in loader]
    {reduced}
    return sum(losses) / len(losses)


def main(ds, val_set, train_epoch):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 4))
    val_loader = DataLoader(val_set, 32, sampler=DistributedSampler(val_set, shuffle=False))
    es = EarlyStopping()
    best, bad = 1e9, 0
    for epoch in range(100):
        train_epoch(model, ds, epoch)
"""


def found(loop: str, told: str = "pass", reduced: str = "pass") -> list[tuple[str, str]]:
    """Return the source at the findings, and their confidence."""
    source = TRAIN.format(told=told, reduced=reduced) + textwrap.indent(textwrap.dedent(loop), 8 * " ")
    findings = check({"train.py": source.encode()}, Settings(select=("AR209",))).findings
    return [(source.splitlines()[one.place.line - 1].strip(), one.confidence) for one in findings]


CALLED = "es(validate(model, val_loader))\nif es.stop:\n    break\n"
STOPS = [
    CALLED,
    "val_loss = validate(model, val_loader)\nes(val_loss)\nif es.stop:\n    break\n",
    "val_loss = validate(model, val_loader)\nes.update(val_loss)\nif es.should_stop():\n    break\n",
    "v = validate(model, val_loader)\nbad = 0 if v < best else bad + 1\nif bad > 3:\n    break\n",
    "v = validate(model, val_loader)\nif v < best:\n    best, bad = v, 0\nbad += 1\nif bad > 3:\n    break\n",
]


@pytest.mark.parametrize("loop", STOPS)
def test_who_is_stopped_by_an_object_that_keeps_scores_leaves_alone(loop: str) -> None:
    """The object is known by its class, the score by the function that gives it."""
    test = next(line for line in loop.splitlines() if line.startswith("if") and "best" not in line)
    assert found(loop) == [(test, "high")]


@pytest.mark.parametrize("loop", STOPS)
def test_scores_that_are_reduced_where_they_are_made_stop_all(loop: str) -> None:
    """The function that gives them has asked the other processes."""
    assert found(loop, reduced="losses = all_gather(losses)") == []


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        (CALLED, "v = mean_of_ranks(v); dist.all_reduce(v)"),
        ("es(validate(model, val_loader))\nstop = broadcast(es.stop)\nif stop:\n    break\n", "pass"),
        ("es(0.5)\nif es.stop:\n    break\n", "pass"),
        ("shown = print\nshown(validate(model, val_loader))\nif epoch > shown:\n    break\n", "pass"),
    ],
)
def test_objects_that_ask_the_others_or_are_told_no_score_stop_all(loop: str, told: str) -> None:
    """The class reduces, the decision is sent, the number is a constant, or nothing keeps it."""
    assert found(loop, told) == []


HOOK = """\
import torch
from composer.core import Callback
from composer.utils import dist

class Guard(Callback):
    def after_backward(self, state, logger):
        loss = state.loss if torch.is_tensor(state.loss) else sum(state.loss)
        value = loss.detach().clone()
        {reduced}
        mean = value.item()
        if mean > 4 * self.base:
            state.stop_training()
"""


@pytest.mark.parametrize(("reduced", "lines"), [("pass", [12]), ("dist.all_reduce(value)", [])])
def test_a_hook_that_ends_the_training_by_its_own_loss_ends_it_alone(reduced: str, lines: list[int]) -> None:
    """The loss is followed through what it is called on the way; one that is reduced is that of all."""
    source = HOOK.format(reduced=reduced)
    findings = check({"hook.py": source.encode()}, Settings(select=("AR209",))).findings
    assert [one.place.line for one in findings] == lines
