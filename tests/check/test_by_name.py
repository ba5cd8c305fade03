"""Methods that are called by a name on objects of any class, and what changes while a loop goes round."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

START = """\
import os
import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter
from registry import HOOKS

dist.init_process_group("nccl")
"""
REGISTRY = "class R(dict):\n    def register(self, it):\n        return it\n\nHOOKS = R()\n"
# The rest of a program -> the codes that are found, in order of place.
PROGRAMS: dict[str, tuple[str, list[str]]] = {
    "hooks in a list": (
        """
class Keep:
    def after_epoch(self, trainer):
        torch.save(trainer.model, "last.pt")

class Trainer:
    def __init__(self, hooks):
        self.hooks = hooks

    def fit(self):
        for hook in self.hooks:
            hook.after_epoch(self)

Trainer([Keep()]).fit()
""",
        ["AR101"],
    ),
    "hooks that a configuration names, called by a text": (
        """
class Hook:
    def after_epoch(self, trainer): ...

@HOOKS.register
class Keep(Hook):
    def after_epoch(self, trainer):
        trainer.save("last.pt")

@HOOKS.register
class Board(Hook):
    def before_run(self, trainer):
        self.writer = SummaryWriter("runs")

class Trainer:
    def __init__(self, cfg):
        self.hooks = [HOOKS[c](**c) for c in cfg]

    def call(self, what):
        for hook in self.hooks:
            getattr(hook, what)(self)

    def save(self, name):
        torch.save({}, name)

    def fit(self):
        self.call("before_run")
        self.call("after_epoch")

Trainer(CONFIG).fit()
""",
        ["AR103", "AR101"],
    ),
    "hooks that ask whom they are given": (
        """
class Keep:
    def after_epoch(self, t):
        if t.comm.lead:
            torch.save({}, "last.pt")

class Comm:
    def __init__(self):
        self.lead = dist.get_rank() == 0

class Trainer:
    def __init__(self, hooks, comm):
        self.hooks, self.comm = hooks, comm

    def fire(self, what):
        for hook in self.hooks:
            getattr(hook, what)(self)

    def fit(self):
        self.fire("after_epoch")

Trainer([Keep()], Comm()).fit()
""",
        [],
    ),
    "hooks that rank 0 alone makes": (
        """
class Keep:
    def after_epoch(self, trainer):
        torch.save({}, "last.pt")

def fit(hooks):
    for hook in hooks:
        hook.after_epoch(None)

fit([Keep()] if dist.get_rank() == 0 else [])
""",
        [],
    ),
    "a counter that is 0 at first": (
        """
step = 0
while True:
    if step > 0:
        torch.save({}, "last.pt")
    step += 1
""",
        ["AR101"],
    ),
    "a flag that a round sets": (
        """
def train(loader):
    started = False
    for batch in loader:
        if started:
            open("log.txt", "a").write("x")
        else:
            started = True

train([])
""",
        ["AR102"],
    ),
    "a flag that no round sets": (
        """
def train(loader):
    save = False
    for batch in loader:
        if save:
            torch.save({}, "last.pt")

train([])
""",
        [],
    ),
    "a guard on the local rank behind `or`": (
        """
def log(local_rank, due):
    if local_rank != 0 or not due:
        return
    open("log.txt", "a").write("x")

def main(due):
    if dist.get_rank() == 0:
        print("start")
    log(int(os.environ["LOCAL_RANK"]), due)

main(CONFIG)
""",
        ["AR105"],
    ),
    "a tracker that each node starts": (
        """
if dist.get_rank() == 0:
    print("start")
if int(os.environ["LOCAL_RANK"]) == 0:
    SummaryWriter("runs")
""",
        ["AR105"],
    ),
    "what is done before others are started": (
        """
def work(rank):
    torch.save({}, "last.pt")

if __name__ == "__main__":
    if int(os.environ["NODE_RANK"]) == 0:
        open("config.txt", "w").write("x")
    torch.multiprocessing.spawn(work, nprocs=8)
""",
        ["AR101"],
    ),
    "a file that is written and put in its place": (
        "torch.save({}, 'a.tmp')\nos.replace('a.tmp', 'a.pt')\nos.replace('b', 'c')\n",
        ["AR101", "AR109"],
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_effects_behind_names_and_rounds(what: str) -> None:
    """Whoever calls a method by its name alone calls those of the classes that are made."""
    text, codes = PROGRAMS[what]
    files = {"train.py": START + text, "registry.py": REGISTRY}
    found = check({path: body.encode() for path, body in files.items()}, Settings(select=("AR10",))).findings
    assert [finding.code for finding in found if finding.confidence == "high"] == codes


HOOK = """\
from lightning.pytorch import Callback

class Export(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        (self.folder / "last.pt").unlink()
"""


def test_a_hook_is_no_tool() -> None:
    """What a framework calls on every process is so, whatever its file is called."""
    found = check({"callbacks/export.py": HOOK.encode()}, Settings()).findings
    assert [finding.code for finding in found] == ["AR109"]


@pytest.mark.parametrize(("given", "codes"), [("", ["AR103"]), (", just_logging=jax.process_index() > 0", [])])
def test_a_writer_of_event_files(given: str, codes: list[str]) -> None:
    """The one of clu writes them wherever it is not told to log alone."""
    text = "import jax\nfrom clu import metric_writers\njax.distributed.initialize()\n"
    text += f"metric_writers.create_default_writer(logdir='w'{given})\n"
    assert [finding.code for finding in check({"train.py": text.encode()}, Settings()).findings] == codes
