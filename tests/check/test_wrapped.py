"""What of a model is asked of the wrapper around it: who has it, who asks which, and who is ready for either."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check
from allranks.check.tables.data import OF_WRAPPER

START = """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from nets import Average, Net


class Ema:
    def __init__(self, model):
        self.ema = model


def part(model, names):
    for name in names:
        model = getattr(model, name)
    return model.weight


def inner(model):
    return inner(model.ema) if isinstance(model, Ema) else model.module


def main(args):
    dist.init_process_group("nccl")
    model = DDP(Net(args))
"""


def found(body: str, start: str = START) -> list[str]:
    text = start + "".join(f"    {line}\n" for line in body.splitlines()) + "\n\nmain(parse())\n"
    findings = check({"train.py": text.encode()}, Settings(select=("AR614",))).findings
    return [text.splitlines()[finding.place.line - 1].strip() for finding in findings if finding.confidence == "high"]


@pytest.mark.parametrize(
    "body",
    [
        "model.reset()",
        "print(model.config)",
        "model.config.size = 3",
        "model.encoder.reset()",
        "net = model\nnet.reset()",
        "model.train()\nmodel.reset()",
        "if args.rank == 0:\n    model.reset()",
    ],
)
def test_it_is_told_where_the_wrapper_is_asked(body: str) -> None:
    """By whatever name the wrapper is known there, and whether something is called, read or stored in it."""
    assert found(body) == [body.splitlines()[-1].strip()]


@pytest.mark.parametrize(
    "body",
    [
        "model.backward(model.step())",
        "for name, one in model.items():\n    one.reset()",
        "part(model, ['a', 'b'])",
        "inner(model).reset()",
        "type(model).reset = reset\nmodel.reset()",
        "model = model.module\nmodel.reset()",
        "net = model.module if args.several else model\nnet.reset()",
        "if args.several:\n    model.module.reset()\nelse:\n    model.reset()",
        "try:\n    model.reset()\nexcept AttributeError:\n    pass",
        "if hasattr(model, 'reset'):\n    model.reset()",
        "model = unknown(model)\nmodel.reset()",
    ],
)
def test_who_is_ready_for_either_is_left_alone(body: str) -> None:
    """Also what other wrappers have themselves, which are kept in the same variables."""
    assert found(body) == []


def test_another_wrapper_is_asked_for_its_own() -> None:
    """Where the option that decides between the two says so, also in other words."""
    either = "if not args.gossip:\n        model = DDP(Net(args))\n    else:\n        model = Average(args)"
    start = START.replace("model = DDP(Net(args))", either)
    assert found("if args.gossip and args.slow:\n    model.block()", start) == []
    assert found("if args.slow:\n    model.block()", start) == ["model.block()"]


def test_who_asks_twice_is_told_once() -> None:
    """He does not come to the second question; on the other side of a condition there is another."""
    both = "if args.slow:\n    model.block()\n    model.block()\nelse:\n    model.block()"
    assert len(found(both)) == 2


def test_a_method_that_runs_before_the_model_is_wrapped_asks_the_model() -> None:
    """An object's attribute is the model itself until it is wrapped, whoever asks for it."""
    code = """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model):
        self.model = model
        self.load()
        self.model = DDP(self.model)

    def load(self):
        self.model.load()

    def fit(self):
        self.model.reset()


dist.init_process_group("nccl")
Trainer(make()).fit()
"""
    findings = check({"train.py": code.encode()}, Settings(select=("AR614",))).findings
    assert [finding.place.line for finding in findings] == [15]


PREPARED = """\
from accelerate import Accelerator


class Trainer:
    def __init__(self, model, frozen, loader):
        self.accelerator = Accelerator()
        self.model, self.loader = self.accelerator.prepare(model, loader)
        self.frozen = frozen

    def fit(self):
        for batch in self.loader:
            self.accelerator.backward(self.model(batch))
            {body}
        if self.accelerator.is_main_process:
            print("done")


Trainer(make(), make(), load()).fit()
"""


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("self.model.reset()", [13]),
        ("print(self.model.config.size)", [13]),
        ("self.accelerator.unwrap_model(self.model).reset()", []),
        ("getattr(self.model, 'module', self.model).config.reset()", []),
        ("self.model.module.config.reset()", []),
        ("self.frozen.reset(self.loader.dataset)", []),
    ],
)
def test_accelerate_wraps_what_it_prepares(body: str, lines: list[int]) -> None:
    """The model alone, which is then asked for; not where anything of the project speaks of models in parts."""
    files = {"train.py": PREPARED.replace("{body}", body).encode()}
    chosen = Settings(select=("AR614",))
    assert [finding.place.line for finding in check(files, chosen).findings] == lines
    assert not check({**files, "run.sh": b"accelerate launch --use_fsdp train.py"}, chosen).findings


@pytest.mark.parametrize("freeze", ["model.requires_grad_(False)", "freeze([frozen, model])"])
def test_accelerate_wraps_nothing_that_is_frozen(freeze: str) -> None:
    """There are no gradients to be averaged; another model that is frozen says nothing of this one."""

    def asked(before: str) -> list[int]:
        code = PREPARED.replace("{body}", "self.model.reset()")
        code = code.replace("self.accelerator = Accelerator()", f"{before}\n        self.accelerator = Accelerator()")
        findings = check({"train.py": code.encode()}, Settings(select=("AR614",))).findings
        return [finding.place.line for finding in findings]

    assert asked(freeze) == []
    assert asked("freeze([frozen])") == [14]


@pytest.mark.needs("torch")
def test_the_table_has_all_that_torch_gives_its_wrapper() -> None:
    """What every module has, and what the wrapper itself defines."""
    from torch.nn.parallel import DistributedDataParallel

    names = {name for name in dir(DistributedDataParallel) if not name.startswith("_")}
    assert names <= OF_WRAPPER
