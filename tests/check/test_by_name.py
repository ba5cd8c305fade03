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
    "hooks that only the main process has, of a class that does nothing": (
        """
class Hook:
    def after_step(self):
        pass

class Keep(Hook):
    def after_step(self):
        torch.save({}, "last.pt")

class Log(Hook):
    def after_step(self):
        open("log.txt", "w").write("x")

def fit(hooks):
    for hook in hooks:
        hook.after_step()

hooks = [Log()]
if dist.get_rank() == 0:
    hooks.insert(0, Keep())
fit(hooks)
""",
        ["AR102"],
    ),
    "a class that a setting picks": (
        """
class Board:
    def __init__(self, cfg):
        self.writer = SummaryWriter(cfg.out)

class Lines:
    def __init__(self, cfg):
        self.file = open(cfg.out / "log.txt", "w")

KINDS = {"board": Board, "lines": Lines}

def build(cfg):
    return KINDS[cfg.kind](cfg)

build(CONFIG)
""",
        ["AR103", "AR102"],
    ),
    "a method of a class that a setting picks": (
        """
class Plain:
    def train(self, model):
        print(model)

class Boarded:
    def train(self, model):
        self.writer = SummaryWriter("runs")

trainer = {"plain": Plain, "boarded": Boarded}[CONFIG.kind]()
trainer.train(CONFIG.model)
""",
        ["AR103"],
    ),
    "one decorator on a function and on what that calls": (
        """
def checked(function):
    def wrapper(*args):
        return function(*args)
    return wrapper

@checked
def save(state):
    torch.save(state, "last.pt")

@checked
def train(state):
    save(state)

def main():
    train({})

main()
""",
        ["AR101"],
    ),
    "what one class alone does, and its base declares": (
        """
from abc import abstractmethod

class Storage:
    @abstractmethod
    def save_config(self, text): ...

class Folder(Storage):
    def save_config(self, text):
        open("config.json", "w").write(text)

class Checkpoints:
    def __init__(self, url):
        self.storage = find(url)

    def keep(self, text):
        self.storage.save_config(text)

Checkpoints(CONFIG.url).keep("{}")
""",
        ["AR102"],
    ),
    "a function that is handed over by its keyword": (
        """
def keep(state):
    torch.save(state, "last.pt")

class Trainer:
    def __init__(self, saving):
        self.saving = saving

    def go(self):
        self.saving({})

Trainer(saving=keep).go()
""",
        ["AR101"],
    ),
    "a thread of a class of its own, and what an object hands on": (
        """
import threading

class Keep(threading.Thread):
    def run(self):
        torch.save({}, "last.pt")

class Writer:
    def write_log(self, name):
        open(name, "w")

class Around:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

Keep().start()
Around(Writer()).write_log("log.txt")
""",
        ["AR101", "AR102"],
    ),
    "functions in a list": (
        """
def keep():
    torch.save({}, "last.pt")

def rest():
    pass

for step in (rest, keep):
    step()
""",
        ["AR101"],
    ),
    "a class that a setting picks on rank 0": (
        """
class Board:
    def __init__(self, cfg):
        self.writer = SummaryWriter(cfg.out)

class Silent:
    def __init__(self, cfg):
        pass

KINDS = {"board": Board, "silent": Silent}

def build(cfg, lead):
    return KINDS.get(cfg.kind)(cfg) if lead else Silent(cfg)

build(CONFIG, dist.get_rank() == 0)
""",
        [],
    ),
    "an attribute that is filled by a method without effects": (
        """
class Average:
    def __init__(self):
        self.shadow = None

    def update(self, model):
        self.shadow = {k: v.clone() for k, v in model.items()}

    def finish(self):
        if self.shadow is not None:
            torch.save(self.shadow, "ema.pt")

average = Average()
average.update({})
average.finish()
""",
        ["AR101"],
    ),
    "a path that the first of each node alone has": (
        """
def log(local_rank, folder):
    table = os.path.join(folder, "table.csv") if local_rank == 0 else None
    if table is not None:
        open(table, "w").write("x")

if dist.get_rank() == 0:
    print("start")
log(int(os.environ["LOCAL_RANK"]), "out")
""",
        ["AR105"],
    ),
    "a path that is called after the rank, where it is not None": (
        """
def log(rank, folder):
    table = os.path.join(folder, f"table-{rank}.csv") if rank < 4 else None
    if table is not None:
        open(table, "w").write("x")

log(dist.get_rank(), "out")
""",
        [],
    ),
    "what a context that only waits at its end leaves to all": (
        """
import contextlib

@contextlib.contextmanager
def then_all():
    yield dist.get_rank() == 0
    dist.barrier()

with then_all() as lead:
    torch.save({}, "all.pt")
    if lead:
        torch.save({}, "one.pt")
""",
        ["AR101"],
    ),
    "options that are given all at once": (
        """
def main(out, bucket=None):
    if bucket:
        open("index.txt", "w").write(bucket)

main(**CONFIG)
""",
        ["AR102"],
    ),
    "arrays in a file that is called as checkpoints are": (
        "import numpy as np\n\nnp.savez(CONFIG / 'params.npz')\nnp.save(CONFIG / 'matrix.npy')\n",
        ["AR101", "AR102"],
    ),
    "what is fetched and written by hand": (
        """
import requests

def fetch(url, path):
    if not os.path.exists(path):
        with open(path + ".part", "wb") as f:
            for chunk in requests.get(url, stream=True).iter_content(1024):
                f.write(chunk)
        os.replace(path + ".part", path)

fetch("http://x.y/z", "z.bin")
""",
        ["AR106"],
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
            open("log.txt", "w").write("x")
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
    open("log.txt", "w").write("x")

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
    sources = {path: body.encode() for path, body in files.items()} | {"run.sh": b"torchrun --nnodes 2 train.py"}
    found = check(sources, Settings(select=("AR10",))).findings
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


BUILDERS = """\
import torch
import torch.distributed as dist

class Builder:
    def get_keepers(self, config):
        return []

class Plain(Builder):
    def get_keepers(self, config):
        return [Keeper()]

class Full(Builder):
    def get_keepers(self, config):
        return [Keeper(), Keeper()]

class Keeper:
    def on_my_end(self):
        torch.save({}, "last.pt")

def main(config):
    dist.init_process_group("nccl")
    builder = config.builder()
    kept = KEEPS
    for keeper in kept:
        keeper.on_my_end()

main(load())
"""


@pytest.mark.parametrize(
    ("keeps", "expected"),
    [
        ("builder.get_keepers(config)", [18]),
        ("builder.get_keepers(config) if dist.get_rank() == 0 else []", []),
    ],
)
def test_what_one_of_several_methods_of_a_name_makes_is_made(keeps: str, expected: list[int]) -> None:
    """Which of them it is, nobody knows; the class that all of them make is made by those who call it."""
    sources = {"train.py": BUILDERS.replace("KEEPS", keeps).encode()}
    found = check(sources, Settings(select=("AR101",))).findings
    assert [one.place.line for one in found] == expected
