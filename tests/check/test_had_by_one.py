"""What one rank alone makes, and every rank then takes a part of; a count by which all take their learning rate."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAINER = """\
import torch
from accelerate import Accelerator
from ema_pytorch import EMA
from heirs import Base

class Trainer{base}:
    def __init__(self, model):
        self.accelerator = Accelerator()
        self.model = self.accelerator.prepare(model)
        self.has_ema = False
        if self.is_main:
            self.ema = EMA(model)
            self.has_ema = True

    @property
    def is_main(self):
        return self.accelerator.is_main_process

    def load(self, path):
        state = torch.load(path, map_location="cpu")
        self.model.load_state_dict(state["model"])
        {use}

    def train(self, path):
        self.load(path)
        for batch in self.batches:
            self.accelerator.backward(self.model(batch))
            if self.is_main:
                self.ema.update()

def main(model):
    Trainer(model).train("last.pt")

main(torch.nn.Linear(2, 2))
"""
RATED = """\
import torch.distributed as dist

def main(optimizer, loader, rank):
    step = 0
    for batch in loader:
        if rank == 0:
            step += 1
        {other}
        rate = learning_rate_at(step, 0.1)
        optimizer.set_learning_rate(rate)
"""


@pytest.mark.parametrize(
    ("base", "use", "found"),
    [
        ("", "self.ema.load_state_dict(state['ema'])", [22]),
        ("(Base)", "self.ema.load_state_dict(state['ema'])", []),
        ("", "self.has_ema and self.ema.load_state_dict(state['ema'])", []),
        ("", "if self.has_ema: self.ema.load_state_dict(state['ema'])", []),
        ("", "if hasattr(self, 'ema'): self.ema.load_state_dict(state['ema'])", []),
        ("", "if self.is_main: self.ema.load_state_dict(state['ema'])", []),
    ],
)
def test_what_one_rank_alone_makes_the_others_do_not_have(base: str, use: str, found: list[int]) -> None:
    """Whoever takes a part of it raises an AttributeError, unless it asks first, or inherits it from elsewhere."""
    outcome = check({"train.py": TRAINER.format(base=base, use=use).encode()}, Settings(select=("AR703",)))
    assert [finding.place.line for finding in outcome.findings] == found


def test_a_method_that_one_rank_alone_calls_may_use_what_it_has() -> None:
    """The rest of the program tells who comes to it."""
    text = TRAINER.format(base="", use="self.ema.load_state_dict(state['ema'])")
    alone = text.replace("        self.load(path)\n", "        if self.is_main:\n            self.load(path)\n")
    assert not check({"train.py": alone.encode()}, Settings(select=("AR703",))).findings


def test_a_method_that_is_handed_on_may_run_where_it_is_had() -> None:
    """It is started as a process by the one rank that has made what it needs."""
    text = TRAINER.format(base="", use="self.ema.load_state_dict(state['ema'])")
    started = text.replace(
        "            self.has_ema = True\n", "            Process(target=self.load, args=(model,)).start()\n"
    )
    assert not check({"train.py": started.encode()}, Settings(select=("AR703",))).findings


@pytest.mark.parametrize(
    ("other", "found"), [("print(batch)", [9]), ("step += 1", []), ("step = broadcast(step)", []), ("step = 5", [])]
)
def test_a_learning_rate_by_a_count_of_one_rank_differs_from_the_others(other: str, found: list[int]) -> None:
    """The replicas drift apart; not if all raise the count, or the others are told."""
    outcome = check({"train.py": RATED.format(other=other).encode()}, Settings(select=("AR703",)))
    assert [finding.place.line for finding in outcome.findings] == found
