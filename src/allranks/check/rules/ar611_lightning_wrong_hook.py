"""AR611: a hook of Lightning runs on one process, or on all, and the code in it wants the other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.passing import ADDING
from allranks.check.tree.syntax import bases_of, calls_of, class_of, function_of, is_constant, keyword, tail_of
from allranks.findings import Finding

_ON_ALL = ("setup", "__init__")
_MODULES = ("LightningDataModule", "LightningModule")
_STEPS = ("training_step", "validation_step", "test_step")
_ELSEWHERE = ", and other files use it"

_ALONE = (
    "Rank 0 sees only its part of the data; a forward pass or a log with sync_dist in it waits for the others.",
    "Let all ranks run the step; put `if self.trainer.is_global_zero` around what one is to write.",
)


class LightningWrongHook(LocalRule):
    """
    ## What it does
    Finds, in a Lightning module or data module, attributes that are set in `prepare_data` or in a method that only it
    calls, and data sets with `download=True` in `setup` or `__init__`. Also a step of a module (`validation_step`, ...)
    that `rank_zero_only` restricts to rank 0.

    ## Why is this bad
    `prepare_data` runs on one process per node. `setup` and `__init__` run on all, and so do the steps, each process
    with its part of the data.

    ## What happens with N processes
    An attribute of `prepare_data` is missing on the other ranks (AttributeError there, and the first rank waits), or
    has the value of `__init__`. A download in `setup` runs in all processes at once, into the same files. A step on
    rank 0 sees one part of the data, and its collectives wait for the others.

    ## Known problems
    A class whose base has another name than `LightningDataModule` or `LightningModule` is recognised only by a
    `training_step`, or a `setup` with the stage as argument, beside its `prepare_data`.

    ## Use instead
    Download in `prepare_data` and keep nothing. Open the data and set attributes in `setup`. Run the step on all ranks,
    and put `if self.trainer.is_global_zero` around what one process writes.
    """

    code, name, severity, row = "AR611", "lightning-wrong-hook", "error", "data"
    cluster = "prepare_data runs on one process of a node, setup and __init__ on all."
    instead_of = ("AR106",)
    advice = "Download in prepare_data, set attributes in setup."
    words = (*_MODULES, "prepare_data")
    nodes = (ast.Assign, ast.AnnAssign, ast.Call, ast.FunctionDef)
    bad = (
        Example(
            {
                "data.py": """\
import lightning as L
from torchvision.datasets import MNIST


class Data(L.LightningDataModule):
    def prepare_data(self):
        self.train = MNIST("data", download=True)
"""
            },
            at=(7,),
        ),
        # The model is built of what it has counted.
        Example(
            {
                "data.py": """\
import lightning as L


class Data(L.LightningDataModule):
    def __init__(self):
        self.words = 0

    def prepare_data(self):
        self.words = max(map(int, open("data/words.txt"))) + 1
""",
                "model.py": """\
import lightning as L
import torch


class Model(L.LightningModule):
    def configure_model(self):
        self.net = torch.nn.Embedding(self.trainer.datamodule.words, 128)
""",
            },
            at=(9,),
        ),
        Example(
            {
                "spoken.py": """\
from task import Task


class Spoken(Task):
    def prepare_data(self):
        self.seconds = [file.seconds for file in self.files]

    def training_step(self, batch, number):
        return self.net(batch).mean() / len(self.seconds)
""",
                "task.py": """\
import lightning as L


class Task(L.LightningModule):
    def __init__(self, files):
        self.files = files
""",
            },
            at=(6,),
        ),
        Example(
            {
                "atoms.py": """\
from store import Store


class Atoms(Store):
    def prepare_data(self):
        self.path = self.folder / "atoms.db"
        self.fetch(self.path)

    def setup(self, stage=None):
        self.rows = self.read(self.path)
""",
                "store.py": """\
import lightning as L


class Store(L.LightningDataModule):
    def __init__(self, folder):
        self.folder = folder
""",
            },
            at=(6,),
        ),
        # Two at once; set to nothing before.
        Example(
            {
                "data.py": """\
import lightning as L
from torch.utils.data import DataLoader, random_split


class Data(L.LightningDataModule):
    def __init__(self, folder):
        self.words = self.kept = None
        self.names = {}

    def prepare_data(self):
        self.names = self.read_names()
        self.train, self.held_out = random_split(self.rows, [90, 10])
        self.kept = self.read()

    def read(self):
        self.words = self.count(self.train)

    def train_dataloader(self):
        if self.kept is None:
            raise ValueError
        return DataLoader(self.train, collate_fn=self.words.collate, names=self.names)
"""
            },
            at=(11, 12, 16),
        ),
        Example(
            {
                "data.py": """\
import pytorch_lightning as pl
from torchvision.datasets import MNIST


class Data(pl.LightningDataModule):
    def setup(self, stage):
        self.train = MNIST("data", download=True)
"""
            },
            at=(7,),
        ),
        Example(
            {
                "module.py": """\
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_only


class Model(LightningModule):
    @rank_zero_only
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.net(batch), sync_dist=True)

    @rank_zero_only
    def on_validation_end(self):
        print("done")
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "data.py": """\
import lightning as L
from torchvision.datasets import MNIST


class Data(L.LightningDataModule):
    def prepare_data(self):
        MNIST("data", download=True)
        self.labels = list(range(10))

    def __init__(self):
        self.labels = []

    def setup(self, stage):
        self.labels.extend(range(10))
        self.train = MNIST("data", download=False, labels=self.labels)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        function, owner = function_of(node, file), class_of(node, file)
        if isinstance(node, ast.FunctionDef):
            if _is_kept_to_one(node) and owner is not None and node in owner.body and _is_lightning(owner, file):
                told = f"{node.name} runs on rank 0 only, and Lightning has a part of the data for every rank"
                yield self.local(file, node, told, cluster=_ALONE[0], advice=_ALONE[1])
            return
        if function is None or owner is None or function not in owner.body:
            return
        if not _is_lightning(owner, file) and not _has_its_hooks(owner, file):
            return
        if isinstance(node, ast.Assign | ast.AnnAssign) and function in (alone := _on_one(owner, file)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in (part for whole in targets for part in getattr(whole, "elts", [whole])):
                if (missing := _is_missing(target, owner, alone)) is not None:
                    by = "" if function.name == "prepare_data" else f"{function.name}, for "
                    told = f"{ast.unparse(target)} is set in {by}prepare_data, which runs on one process of a node"
                    yield self.local(file, node, f"{told}{missing}")
        elif function.name in _ON_ALL and isinstance(node, ast.Call) and is_constant(keyword(node, "download"), True):
            yield self.local(file, node, f"{tail_of(node)} downloads in {function.name}, which all processes run")

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether the project trains by Lightning at all, and uses what is missing."""
        if program.packages.isdisjoint(("lightning", "pytorch_lightning")):
            return False
        if not finding.message.endswith(_ELSEWHERE):
            return True
        used = finding.message.partition(" ")[0].removeprefix("self")
        others = (lines for path, lines in program.facts.lines.items() if path != finding.place.path)
        return any(re.search(rf"(?i)data_?module\w*{re.escape(used)}\b", line) for lines in others for line in lines)


def _is_lightning(owner: ast.ClassDef, file: File) -> bool:
    return any(base.rpartition(".")[2] in _MODULES for base in bases_of(owner, file))


def _has_its_hooks(owner: ast.ClassDef, file: File) -> bool:
    """Whether a class of another base has `prepare_data` beside what Lightning alone calls, and calls none of it."""
    has = {at.name: at for at in owner.body if isinstance(at, ast.FunctionDef)}
    steps = not has.keys().isdisjoint(("training_step", "configure_optimizers"))
    module = steps or ("setup" in has and any(at.arg == "stage" for at in has["setup"].args.args))
    known = bool(owner.bases) and "prepare_data" in has and module
    return known and not any(name in calls_of(file) for name in ("prepare_data", "training_step"))


def _is_kept_to_one(function: ast.FunctionDef) -> bool:
    return function.name in _STEPS and any(tail_of(at) == "rank_zero_only" for at in function.decorator_list)


def _on_one(owner: ast.ClassDef, file: File) -> list[ast.stmt]:
    """Return `prepare_data`, and the methods that it alone calls, or these do."""
    found = [at for at in owner.body if isinstance(at, ast.FunctionDef) and at.name == "prepare_data"]
    for method in found:
        called = {tail_of(at): at for at in walk(method) if isinstance(at, ast.Call) and _is_own(at.func)}
        for at in owner.body:
            if isinstance(at, ast.FunctionDef) and at.name in called and at not in found and not at.decorator_list:
                named = [one for one in walk(owner) if isinstance(one, ast.Attribute) and one.attr == at.name]
                if all(function_of(one, file) in found for one in named):
                    found.append(at)
    return list(found)


def _is_own(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self"


def _is_missing(target: ast.expr, owner: ast.ClassDef, alone: list[ast.stmt]) -> str | None:
    """Say who misses ``target``, an attribute that no other method sets but those on one process (``alone``); or others
    set it to None, to 0, or leave it empty, and use it and never ask. None if nobody does."""
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name) or target.value.id != "self":
        return None
    nodes = [at for s in owner.body if s not in alone for at in walk(s)]
    empty = [at for at in nodes if isinstance(at, ast.Assign | ast.AnnAssign) and _is_empty(at.value)]
    emptied = {id(t) for at in empty for t in (at.targets if isinstance(at, ast.Assign) else [at.target])}
    others = [at for at in nodes if isinstance(at, ast.Attribute) and at.attr == target.attr]
    stores = [at for at in others if isinstance(at.ctx, ast.Store)]
    if not stores:
        return "" if others or any(at is target for at in walk(alone[0])) else None
    asks = (at for at in nodes if isinstance(at, ast.If | ast.IfExp | ast.Assert | ast.BoolOp))
    asked = any(
        f"self.{target.attr}" in ast.unparse(at.values[0] if isinstance(at, ast.BoolOp) else at.test) for at in asks
    )
    again = any(isinstance(at, ast.Call) and tail_of(at) == "prepare_data" for at in nodes)
    again = again or any(_fills(at, target.attr) for at in nodes)
    if asked or again or any(id(at) not in emptied for at in stores):
        return None
    return "" if len(stores) < len(others) else _ELSEWHERE


def _is_empty(value: ast.expr | None) -> bool:
    """None, 0, ``[]``, ``{}``, ``dict()``."""
    if isinstance(value, ast.List | ast.Tuple):
        return not value.elts
    if isinstance(value, ast.Call):
        return tail_of(value) in ("dict", "list", "set") and not value.args and not value.keywords
    nothing = isinstance(value, ast.Constant) and not isinstance(value.value, bool | str) and not value.value
    return nothing or (isinstance(value, ast.Dict) and not value.keys)


def _fills(node: ast.AST, attribute: str) -> bool:
    """``self.words[key] = value``, ``self.words.append(value)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
        filled: ast.expr | None = node.func.value
    else:
        filled = node.value if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) else None
    return isinstance(filled, ast.Attribute) and filled.attr == attribute
