"""Who catches what a step raises, and goes on to the next, has left out a backward pass, wherever the step stands."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAINER = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.opt = DistributedDataParallel(model), optimizer

    def {name}(self, x):
        loss = self.model(x).mean()
        loss.backward()
        self.{ends}
        return loss.detach()

    def run_epoch(self, loader):
        for i, x in enumerate(loader):
            try:
                loss = self.{name}(x)
            except {caught}
            print(i, loss)
"""
MEMORY = """RuntimeError as e:
                if "out of memory" not in str(e):
                    raise
                continue"""
ANY = "Exception as e:\n                continue"
NONE = "Exception as e:\n                raise ValueError(i) from e"


def found(caught: str, name: str = "step", ends: str = "opt.zero_grad()") -> list[tuple[int, str]]:
    source = TRAINER.format(caught=caught, name=name, ends=ends)
    findings = check({"train.py": source.encode()}, Settings(select=("AR209",))).findings
    return [(one.place.line, one.confidence) for one in findings]


@pytest.mark.parametrize("name", ["step", "training_step", "update"])
@pytest.mark.parametrize("caught", [MEMORY, ANY, "torch.cuda.OutOfMemoryError:\n                continue"])
def test_a_step_that_is_a_method_of_its_own_fails_alone(name: str, caught: str) -> None:
    """The optimizer is spoken of in the step alone, not in the loop."""
    assert found(caught, name) == [(22, "high")]


@pytest.mark.parametrize(
    ("caught", "name", "ends"),
    [(NONE, "step", "opt.zero_grad()"), (ANY, "saliency", "opt.zero_grad()"), (ANY, "step", "model.eval()")],
)
def test_who_ends_the_job_or_takes_no_step_leaves_nobody(caught: str, name: str, ends: str) -> None:
    """A backward pass with no optimizer is no step of training, nor is what is not called one."""
    assert found(caught, name, ends) == []


def test_data_that_cannot_be_read_for_a_step_that_is_a_method() -> None:
    """The process leaves its round before it calls its step."""
    source = TRAINER.format(caught=ANY, name="step", ends="opt.zero_grad()")
    source = source.replace("loss = self.step(x)", "x = torch.load(x)").replace("print(i, loss)", "self.step(x)")
    findings = check({"train.py": source.encode()}, Settings(select=("AR209",))).findings
    assert [one.place.line for one in findings] == [22]


LOOP = """\
import torch

class Loop:
    def __init__(self, model, opt):
        self.model, self.opt = model, opt

    def step(self, batch):
        try:
            self.model(batch).backward()
        except torch.cuda.OutOfMemoryError:
            self.opt.zero_grad()
            return
        self.opt.step()
"""
WRAPS = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from loop import Loop

dist.init_process_group("nccl")
loop = Loop({model}, torch.optim.SGD)
for batch in data():
    loop.step(batch)
"""


@pytest.mark.parametrize(("model", "lines"), [("DDP(make())", [10]), ("make()", [])])
def test_a_file_that_speaks_of_no_processes_steps_in_several_if_it_is_given_a_wrapped_model(
    model: str, lines: list[int]
) -> None:
    """Where the model is wrapped stands in another file."""
    sources = {"loop.py": LOOP.encode(), "train.py": WRAPS.format(model=model).encode()}
    findings = check(sources, Settings(select=("AR209",))).findings
    assert [one.place.line for one in findings if one.place.path == "loop.py"] == lines


def test_a_step_that_is_made_in_another_way_where_it_fails_is_made() -> None:
    """The backward pass stands in the handler too."""
    source = LOOP.replace("self.opt.zero_grad()", "self.model(batch).backward()").replace("            return\n", "")
    sources = {"loop.py": source.encode(), "train.py": WRAPS.format(model="DDP(make())").encode()}
    assert check(sources, Settings(select=("AR209",))).findings == ()
